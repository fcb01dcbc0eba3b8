//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tiny makes a directory of which a definition can make an image: a shell and
// what that needs, so that a build takes seconds.
const tiny = `mkdir -p root/bin root/lib64 root/lib/x86_64-linux-gnu
cp -L /bin/dash root/bin/sh; cp -L /bin/cat root/bin/cat
for f in $(ldd /bin/dash /bin/cat | grep -o '/lib[^ ]*' | sort -u); do mkdir -p root$(dirname $f); cp -L $f root$f; done
cat >tiny.def <<'END'
Bootstrap: scratch

%files
    root/bin /bin
    root/lib /lib
    root/lib64 /lib64

%post
    echo built in a job >/made
END
`

// A definition is built in a job on its node, from files beside it, and is an
// image for jobs and environments from then on.
func TestImageBuild(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	t.Cleanup(func() { s.sh(t, env+"berth env rm --all --force >/dev/null 2>&1") })

	a := s.want(t, env+tiny+"berth image build tiny.def", 0, "submitted to slurm", "%post as root")
	path := strings.TrimSpace(a.out)
	if !regexp.MustCompile(`^` + d + `/state/images/sha256/[0-9a-f]{64}\.sif$`).MatchString(path) {
		t.Fatalf("it printed %q", a.out)
	}
	s.ok(t, env+"cmp tiny.def "+strings.TrimSuffix(path, ".sif")+".def; grep -q '\"definition\"' "+strings.TrimSuffix(path, ".sif")+".json")
	if got := s.ok(t, env+"berth run --image build:tiny -- 'cat /made'"); got != "built in a job" {
		t.Errorf("%q", got)
	}
	if got := s.ok(t, env+"berth exec --image build:tiny -- 'cat /made'"); got != "built in a job" {
		t.Errorf("%q", got)
	}
	s.want(t, env+"berth image rm build:tiny", 2, "used by environment default")

	// It begins with an image that was built, on this machine, without Slurm.
	s.want(t, env+"printf 'Bootstrap: localimage\\nFrom: "+path+"\\n%%post\\n  echo more >>/made\\n' >more.def; berth image build --local --name more-1 more.def", 0, "submitted to local")
	if got := s.ok(t, env+"berth run --image build:more-1 -- 'cat /made'"); got != "built in a job\nmore" {
		t.Errorf("%q", got)
	}

	// What fails, and what is refused before anything is recorded.
	s.want(t, env+"printf 'Bootstrap: localimage\\nFrom: "+path+"\\n%%post\\n  echo last words; no-such-program\\n' >bad.def; berth image build bad.def", 1, "last words", "no-such-program: not found", "a script of the definition failed")
	before := s.ok(t, env+"ls -d state/jobs/*/* | wc -l")
	s.want(t, env+"printf 'Bootstrap: scratch\\n%%environment\\n  export API_TOKEN=abc\\n' >sec.def; berth image build sec.def", 2, "sec.def:3 holds what looks like a secret, a value of API_TOKEN")
	s.want(t, env+"berth image build tiny.def --name ../x", 2, "cannot name an image")
	s.want(t, env+"berth run --image build:nothing -- true", 3, "berth image build FILE.def --name nothing")
	if after := s.ok(t, env+"ls -d state/jobs/*/* | wc -l"); after != before {
		t.Errorf("%s jobs, and %s before", after, before)
	}

	// A build is cancelled as other jobs are, and leaves nothing.
	a = s.sh(t, env+"printf 'Bootstrap: localimage\\nFrom: "+path+"\\n%%post\\n  echo looping; cat /dev/zero >/dev/null\\n' >loop.def; "+
		"berth image build loop.def --slurm --nodelist=c1 >out 2>err & until grep -q '^looping' err; do sleep 0.2; done; berth cancel $(berth ps -q 2>/dev/null || sed -n 's/.*job \\([0-9a-f]*\\) submitted.*/\\1/p' err); wait $!")
	if a.code != 130 {
		t.Errorf("exit code %d: %s %s", a.code, a.out, s.sh(t, env+"cat err").out)
	}
	s.bare(t, "c1", "ls -d /tmp/berth-1000-image-* /tmp/berth-1000-scratch/*-image-* 2>/dev/null")
	s.bare(t, "login", "ls -A "+d+"/state/images | grep new-")
}

// A script of a build, and a template's, has a /tmp and a /var/tmp of its own: it meets
// no socket, no scratch directory and no unpacked image there, and leaves nothing.
func TestImageBuildTemp(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	t.Cleanup(func() { s.sh(t, env+"berth env rm --all --force >/dev/null 2>&1") })
	s.ok(t, env+"berth exec --backend local -- true; ls /tmp/berth-1000/*.sock; mkdir -p /tmp/berth-1000-images; touch /var/tmp/of-the-host-$$") // a keeper, here
	const script = "echo sees /tmp/* /tmp/.[!.]* /var/tmp/*; echo x >/tmp/left-by-build; echo x >/var/tmp/left-by-build"
	a := s.want(t, env+tiny+"echo '    "+script+"' >>tiny.def; berth image build --local tiny.def", 0, regexp.QuoteMeta("sees /tmp/* /tmp/.[!.]* /var/tmp/*"))
	path := strings.TrimSpace(a.out)
	s.want(t, env+"printf 'image = \""+path+"\"\nbootstrap = \"\"\"\n"+strings.ReplaceAll(script, `"`, `\"`)+"\n\"\"\"\n' >mine.toml; berth template add mine.toml; berth template build mine", 0)
	if got := s.ok(t, env+"grep -h '^sees' state/jobs/*/*/attempts/0001/stderr"); got != "sees /tmp/* /tmp/.[!.]* /var/tmp/*\nsees /tmp/* /tmp/.[!.]* /var/tmp/*" {
		t.Errorf("the scripts say %q", got)
	}
	s.ok(t, "! ls /tmp/left-by-build /var/tmp/left-by-build 2>/dev/null; rm -f /var/tmp/of-the-host-*")
}

// A script of a build, and of a template, is root with no more capabilities than
// commands of tasks have: it reaches no file of the host by unmounting or by
// processes, nor a kernel keyring, and nothing of the base image runs before it is
// confined. Packages are installed as ever.
func TestImageBuildConfined(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	t.Cleanup(func() { s.sh(t, env+"berth env rm --all --force >/dev/null 2>&1") })
	// A base with the programs that a script needs for it, whose own scripts say what they may do.
	const base = `mkdir -p root/.singularity.d/env root/tmp root/proc root/etc root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/log
for p in sh cat grep ls umount mount unshare perl chown dpkg dpkg-deb dpkg-split rm tar diff mkdir chmod ldconfig start-stop-daemon; do
	at=$(PATH=$PATH:/usr/sbin:/sbin command -v $p) && mkdir -p root/bin && cp -L $at root/bin/$p
	ldd $at 2>/dev/null | grep -o '/lib[^ ]*' | while read f; do mkdir -p root$(dirname $f); cp -L $f root$f; done
done
mkdir -p root/usr/share
cp /etc/passwd /etc/group root/etc/; touch root/var/lib/dpkg/status root/var/lib/dpkg/available; cp -r /usr/share/dpkg root/usr/share/
echo 'export OF_BASE=1; echo "base has $(/bin/grep CapEff /proc/self/status)" >&2' >root/.singularity.d/env/10-docker2singularity.sh
mkdir -p p/DEBIAN p/opt; echo hi >p/opt/loc; printf '#!/bin/sh\nset -e\nchown 0:0 /opt/loc\necho postinst ran\n' >p/DEBIAN/postinst; chmod 755 p p/DEBIAN p/DEBIAN/postinst
printf 'Package: loc\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' >p/DEBIAN/control; dpkg-deb --root-owner-group -b p root/loc.deb >/dev/null
`
	const script = `set +e
echo "variable of the base: $OF_BASE"
umount /tmp; echo "umount $?"
unshare -Urm umount /tmp; echo "umount in a namespace $?"
mount -t tmpfs x /opt; echo "mount $?"
ls /proc/1/root/home/alice; echo "root of 1: $?"
for p in /proc/[0-9]*; do if ls -d $p/root/home/alice >/dev/null 2>&1; then echo "reached by $p"; fi; done
perl -le 'print "keyctl ", syscall(250, 0, -3, 0), " ", $!+0'
grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/self/status
dpkg -i /loc.deb; echo "dpkg $?"
(while :; do cat /proc/uptime >/dev/null; done) &
echo 'export FROM_POST=1' >>$APPTAINER_ENVIRONMENT
`
	const held = `variable of the base: 1
umount 32
umount in a namespace 32
mount 32
root of 1: 2
keyctl -1 1
CapBnd:	00000000a80425fb
NoNewPrivs:	1
Seccomp:	2
`
	shown := `grep -E '^(variable|umount [0-9i]|mount [0-9]|root of|reached|keyctl|CapBnd|NoNew|Seccomp)' `
	s.ok(t, env+base+"cat >tried <<'END'\n"+script+"END\n"+`(printf 'Bootstrap: localimage\nFrom: '$PWD/root'\n\n%%post\n'; cat tried; printf '%%test\n    echo "in test $(grep CapEff /proc/self/status)"\n') >base.def`)
	a := s.want(t, env+"berth image build --local base.def 2>err; c=$?; cat err >&2; exit $c", 0, "postinst ran", "dpkg 0", "in test CapEff:\t00000000a80425fb")
	path := strings.TrimSpace(a.out)
	if got := s.ok(t, env+shown+"err"); got != strings.TrimSpace(held) {
		t.Errorf("the script of a build says %q", got)
	}
	if got := s.ok(t, env+"grep -h '^base has' err | sort -u"); got != "base has CapEff:\t00000000a80425fb" {
		t.Errorf("scripts of the base say %q", got)
	}
	// What is built has the shell of its base, and the definition is the user's.
	s.ok(t, env+"cmp base.def "+strings.TrimSuffix(path, ".sif")+".def; apptainer inspect --deffile "+path+" | diff - base.def")
	if got := s.ok(t, env+"berth run --image "+path+" -- 'echo $OF_BASE $FROM_POST; cat /opt/loc; grep -c guest.ScriptMain /bin/sh'; true"); got != "1 1\nhi\n0" {
		t.Errorf("%q", got)
	}
	s.want(t, env+"(printf 'image = \""+path+"\"\nbootstrap = \"\"\"\n'; sed 's/\\\\/&&/g' tried; printf '\"\"\"\n') >mine.toml; berth template add mine.toml; berth template build mine", 0)
	if got := s.ok(t, env+shown+"-h state/jobs/*/*/attempts/0001/stderr | sort | uniq -c | grep -vc ' 2 '; true"); got != "0" {
		t.Errorf("the template's script differs in %s lines", got)
	}
	s.want(t, env+"printf 'Bootstrap: localimage\nFrom: "+path+"\n%%test\n#!/bin/cat\n' >test.def; berth image build --local test.def", 2, "line 4 of the definition gives %test an interpreter of its own")
}

// Without ids of one's own, %post is root alone, over an unpacked base.
func TestImageBuildAlone(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	ids := func(from, to string) {
		if a := s.on(t, "c2", "root", "sed", "-i", "s/^"+from+":/"+to+":/", "/etc/subuid", "/etc/subgid"); a.code != 0 {
			t.Error(a.err)
		}
	}
	path := s.ok(t, env+tiny+"berth image build tiny.def --name base")
	ids("alice", "nobody-else")
	t.Cleanup(func() { ids("nobody-else", "alice") })
	s.want(t, env+"printf 'Bootstrap: localimage\\nFrom: "+path+"\\n%%post\\n  echo alone >/made\\n' >alone.def; berth image build alone.def --slurm --nodelist=c2", 0, "unpacking "+path, "%post as root without other users")
	if got := s.ok(t, env+"berth run --image build:alone -- 'cat /made'"); got != "alone" {
		t.Errorf("%q", got)
	}
	if got := s.ok(t, env+"berth image show build:alone"); !strings.Contains(got, "%post as\troot without other users") {
		t.Error(got)
	}
}

// The image of a template is built once, by whoever wants it first, and every
// use has its limits and variables.
func TestTemplate(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	t.Cleanup(func() { s.sh(t, env+"berth env rm --all --force >/dev/null 2>&1") })
	path := s.ok(t, env+tiny+"berth image build tiny.def")
	template := fmt.Sprintf(`cat >mine.toml <<'END'
image = %q
env = ["GREETING", "UNSET"]
bootstrap = "echo ready >/state-of-it"
[resources]
time = "7m"
END
`, path)
	s.ok(t, env+template+"berth template add mine.toml")
	began := time.Now()
	out := s.ok(t, env+`export GREETING=hello
for i in 1 2; do berth run --template mine -- 'cat /state-of-it; echo $GREETING ${UNSET-none}' >out$i 2>err$i & done; wait
cat out1 out2; grep -l "INFO: *Build complete" state/jobs/*/*/attempts/0001/stderr | wc -l`)
	if out != "ready\nhello none\nready\nhello none\n2" { // the base, and the template
		t.Errorf("%q", out)
	}
	t.Logf("two at once: %v", time.Since(began))
	if got := s.ok(t, env+"berth render --template mine -- true"); !strings.Contains(got, "--time=00:0") || strings.Contains(got, "/"+strings.Repeat("0", 64)+".sif") {
		t.Error(got)
	}
	// An environment has it too; when the template changes, it is not that one.
	if got := s.ok(t, env+"export GREETING=again; berth exec --template mine -- 'cat /state-of-it; echo $GREETING'"); got != "ready\nagain" {
		t.Errorf("%q", got)
	}
	s.ok(t, env+"sed 's/ready/changed/' mine.toml >new.toml; berth template add new.toml --name mine --force")
	if got := s.ok(t, env+"berth template build mine"); !strings.HasPrefix(got, "template:mine@") {
		t.Errorf("%q", got)
	}
	s.want(t, env+"berth exec --template mine -- true", 125, "another state of the template mine")
	if got := s.ok(t, env+"berth run --template mine -- 'cat /state-of-it'"); got != "changed" {
		t.Errorf("%q", got)
	}
	// A script that fails says why, and is not kept.
	s.want(t, env+"sed 's/echo ready.*/no-such-program\"/' mine.toml >bad.toml; berth template add bad.toml; berth run --template bad -- true", 2, "no-such-program: not found", "that builds template:bad@")
	s.want(t, env+"printf 'image = \"/x.sif\"\\nbootstrap = \"export A_TOKEN=b\"\\n' >sec.toml; berth template add sec.toml", 2, "sec.toml:2 holds what looks like a secret")
	if got := s.ok(t, env+"berth template ls | cut -f1,2"); got != "bad\tno\nclaude\tno\ncodex\tno\ncopilot\tno\ndefault\tno\ngemini\tno\nmine\tyes\nmini-swe-agent\tno\nminimal\tno\nopencode\tno" {
		t.Errorf("%q", got)
	}
}
