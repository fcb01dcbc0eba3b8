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
	s.bare(t, "c1", "ls -d /tmp/berth-1000-image-* 2>/dev/null")
	s.bare(t, "login", "ls -A "+d+"/state/images | grep new-")
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
	if got := s.ok(t, env+"berth template ls | cut -f1,2"); got != "bad\tno\ndefault\tno\nmine\tyes\nminimal\tno" {
		t.Errorf("%q", got)
	}
}
