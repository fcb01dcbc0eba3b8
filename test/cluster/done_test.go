//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// A task prepares all that a check looks at outside of the workspace: programs,
// what Python and the dynamic linker load, temporary files. Its change repairs
// nothing, so that only what it has planted can turn the test green.
const forgery = `
printf '#!/bin/sh\necho FORGED >&2\nexit 0\n' >/usr/local/bin/python3
chmod 755 /usr/local/bin/python3
site=$HOME/.local/lib/python3.13/site-packages
mkdir -p "$site"
printf 'import os\nos._exit(0)\n' >"$site/usercustomize.py"
: >/etc/ld.so.preload
echo >/tmp/planted
echo >/var/tmp/planted
echo nothing >>README.md
`

// nothingPlanted is a check that is green when it sees none of that.
const nothingPlanted = `test ! -e /usr/local/bin/python3 && test ! -e "$HOME/.local" && test ! -e /etc/ld.so.preload && test ! -e /tmp/planted && test ! -e /var/tmp/planted && test -w /tmp && test -w "$HOME"`

// forge submits such a task; head are further keys of its own, before the tables.
func (s site) forge(t *testing.T, dir, head, done, terminal string) answer {
	t.Helper()
	s.ok(t, fmt.Sprintf("cat >%s/t.md <<'E'\n+++\nname = 'forge'\n%s\ndone = [%s]\n[agent]\ncommand = '''%s'''\n[workspace]\nrepo = 'repo'\n[terminal]\n%s\n+++\nE", dir, head, done, forgery, terminal))
	return s.sh(t, "berth submit --image "+s.image+" "+dir+"/t.md")
}

// What a check decides, the task has no hand in.
func TestDone(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	const tests, nothing = `"python3 -m unittest -q"`, `'''` + nothingPlanted + `'''`
	const over = "checked over the task's own files"
	id := func(t *testing.T, a answer) string {
		t.Helper()
		if a.code != 0 {
			t.Fatalf("%+v", a)
		}
		return strings.TrimSpace(a.out)
	}
	repo := func(t *testing.T) string {
		t.Helper()
		d := s.dir(t)
		s.ok(t, "/mnt/share/examples/fix-the-test/make-repo "+d+"/repo")
		return d
	}
	for _, c := range []struct{ name, overlay string }{
		{name: "thrown away"},
		{name: "overlay", overlay: "--driver fuse"},
		{name: "ext3", overlay: "--driver ext3 --size 64MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, terminal, has := repo(t), "", ""
			if c.overlay != "" {
				name := s.overlayOf(t, c.overlay)
				s.wait(t, s.submit(t, "--overlay "+name, "echo >/before"), 0)
				terminal, has = `overlay = "`+name+`"`, ` && test -e /before && echo >/of-the-check`
			}
			forged := s.wait(t, id(t, s.forge(t, d, "", tests, terminal)), 1)
			if forged.State != "failed" || !strings.Contains(forged.Reason, "the done command python3") {
				t.Errorf("%+v", forged)
			}
			if errs := s.ok(t, "berth logs --done "+forged.ID+" 2>&1"); strings.Contains(errs, "FORGED") || !strings.Contains(errs, "test_top") {
				t.Errorf("the checks said %s", errs)
			}
			clean := s.wait(t, id(t, s.forge(t, d, "", strings.TrimSuffix(nothing, "'''")+has+"'''", terminal)), 0)
			if text := s.ok(t, "berth status "+clean.ID+"; berth explain "+clean.ID); strings.Contains(text, over) {
				t.Errorf("it says %s", text)
			}
			if c.overlay != "" { // which has what the task wrote now, and nothing of its check
				diff := s.ok(t, "berth overlay diff "+strings.Trim(strings.TrimPrefix(terminal, "overlay = "), `"`))
				if !strings.Contains(diff, "/usr/local/bin/python3") || strings.Contains(diff, "of-the-check") {
					t.Errorf("the overlay has %s", diff)
				}
			}
			taken := s.wait(t, id(t, s.forge(t, d, `done_over = "task"`, tests, terminal)), 0)
			for _, verb := range []string{"status ", "explain "} {
				if text := s.ok(t, "berth "+verb+taken.ID); !strings.Contains(text, over) {
					t.Errorf("berth %sdoes not say it:\n%s", verb, text)
				}
			}
			if c.overlay == "" {
				s.wait(t, id(t, s.forge(t, d, `done_over = "task"`, nothing, terminal)), 1)
			}
		})
	}
	t.Run("in place", func(t *testing.T) {
		t.Parallel()
		d, name := repo(t), s.overlayOf(t, "--driver fuse")
		terminal := `overlay = "` + name + `"` + "\n" + `overlay_snapshot = "never"`
		if a := s.forge(t, d, "", tests, terminal); a.code != 78 || !strings.Contains(a.err, "done_over") {
			t.Errorf("%+v", a)
		}
		s.wait(t, id(t, s.forge(t, d, `done_over = "task"`, tests, terminal)), 0)
	})
}

// A killed runner leaves the task's files on its node; the next one there brings
// them, and nothing else of them is left.
func TestWorkOfKilled(t *testing.T) {
	s := standard
	s.need(t)
	t.Cleanup(func() { s.quiet(t) })
	d := s.dir(t)
	s.ok(t, "/mnt/share/examples/fix-the-test/make-repo "+d+"/repo")
	id := s.submit(t, "--retry off --workspace "+d+"/repo", "echo precious >found.txt; mkdir sub; cd sub; git init -q .; cd ..; echo ready; sleep 318")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
	st := s.status(t, id)
	if left := s.on(t, st.Node, "root", "bash", "-c", "cat /tmp/berth-1000-*/work/found.txt /tmp/berth-1000-scratch/*/work/found.txt; ls "+st.Dir); strings.Contains(left.out, "work") || !strings.Contains(left.out, "precious") {
		t.Errorf("the workspace is not on the node alone: %+v", left)
	}
	s.on(t, st.Node, "root", "pkill", "-9", "-f", "berth-node.* runner --attempt "+st.Dir)
	a := s.sh(t, "berth wait --timeout 10m "+id)
	if a.code == 0 {
		t.Fatalf("%+v", a)
	}
	if text := s.ok(t, "berth status "+id); !strings.Contains(text, "the task's files are on "+st.Node) {
		t.Errorf("status says %s", text)
	}
	s.wait(t, s.submit(t, "--slurm --nodelist="+st.Node, "true"), 0)
	if text := s.ok(t, "berth status "+id+"; cat "+st.Dir+"/work/found.txt; find "+st.Dir+"/work -name .git"); !strings.Contains(text, "the task's files are in "+st.Dir+"/work") || !strings.HasSuffix(text, "\nprecious") {
		t.Errorf("status says %s", text)
	}
}
