//go:build cluster

package cluster

import (
	"strings"
	"testing"

	"berth/jobs"
)

// A script that a task leaves in a kept layer does not run before the guest, in
// whose place it could answer, nor anywhere else.
func TestScriptsPlanted(t *testing.T) {
	s := standard
	s.need(t)
	s.sh(t, "berth overlay rm --force planted-env")
	t.Cleanup(func() { s.sh(t, "berth overlay rm --force planted-env") })
	const overlay = "--overlay planted-env "
	id := s.submit(t, overlay, `mkdir -p /usr/local/evil; cp /.berth/node /usr/local/evilguest; echo >>/usr/local/evilguest
for d in /.singularity.d/env /usr/local/evil; do printf 'touch /usr/local/ran; exec /usr/local/evilguest guest\n' 2>/dev/null >$d/zz-poc.sh; done
ls -A /.singularity.d/env; echo planted`)
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs --stdout "+id); out != "planted" {
		t.Errorf("%q", out)
	}
	// By the hand of whoever has the layer's files.
	s.ok(t, "u=$(find ~/.local/state/berth/overlays/planted-env -type d -name upper | head -1); mkdir -p $u/.singularity.d/env && printf 'touch /usr/local/ran; exec /usr/local/evilguest guest\\n' >$u/.singularity.d/env/zz-poc.sh")
	st := s.wait(t, s.submit(t, overlay+"--bind /run/munge", "echo never"), jobs.CodeConfig)
	if st.Exit.Started || !strings.Contains(st.Reason, "can reach the socket of munge") {
		t.Errorf("%q", st.Reason)
	}
	id = s.submit(t, overlay, "ls /usr/local/ran /.singularity.d/env; echo over")
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs --stdout "+id); out != "/.singularity.d/env:\nover" && out != "over" {
		t.Errorf("%q", out)
	}
}

// What an image sets by its scripts, commands have: of a job, of a rank and of an
// environment.
func TestScriptsOfImage(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	img := d + "/image"
	s.ok(t, "unsquashfs -q -n -no-xattrs -o $(apptainer sif list "+s.image+" | sed -n 's/.*|\\([0-9]*\\)-[0-9]* *|FS (Squashfs.*/\\1/p') -d "+img+" "+s.image+" >/dev/null 2>&1; printf 'export PATH=/opt/own/bin:$PATH\\nexport FOO=\"own value\"\\n' >"+img+"/.singularity.d/env/10-docker2singularity.sh")
	const look = `echo "$FOO|${PATH%%:*}|$LD_LIBRARY_PATH"`
	const want = "own value|/opt/own/bin|/.singularity.d/libs"
	for _, flags := range []string{"", "--ntasks 2"} {
		id := s.submit(t, flags+" --image "+img, look)
		s.wait(t, id, 0)
		if out := s.ok(t, "berth logs --stdout "+id); strings.Count(out, want) != 1+strings.Count(flags, "ntasks") {
			t.Errorf("%s: %q", flags, out)
		}
	}
	t.Cleanup(func() { s.sh(t, "berth env rm --force scripts") })
	if out := s.ok(t, "cd "+d+" && berth exec --env scripts --image "+img+" -- sh -c "+quote(look)); out != want {
		t.Errorf("an environment: %q", out)
	}
}

// A program that stands between berth and the guest is found from outside, and is
// sent nothing: here the container program begins a shell of the image's, as old
// versions of Singularity do, and that the guest. One that begins the guest alone
// is berth's own, and the receipt says so.
func TestGuestReplaced(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "mkdir "+d+"/bin && cat >"+d+`/bin/apptainer <<'E'
#!/bin/bash
args=()
for a; do case $a in /.berth/node) args+=(/bin/sh -c '"$@"; true' sh /.berth/node);; *) args+=("$a");; esac; done
exec /usr/bin/apptainer "${args[@]}"
E
chmod 755 `+d+"/bin/apptainer")
	between := "cd " + d + " && export PATH=" + d + "/bin:$PATH; "
	const said = "not berth's own program, or not alone: \"/usr/bin/dash\" runs there"
	s.want(t, between+"berth run --scheduler local --image "+s.image+" -- 'echo never'", jobs.CodeConfig, said, "hint: ")
	t.Cleanup(func() { s.sh(t, "berth env rm --force replaced") })
	s.want(t, between+"berth exec --env replaced --image "+s.image+" -- 'echo never'", 125, said, "hint: ")
	id := s.submit(t, "", "true")
	s.wait(t, id, 0)
	s.want(t, "berth explain "+id+" >&2", 0, "the program that answered is berth's own file, compared from outside")
}
