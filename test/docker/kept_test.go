//go:build docker

package docker_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// keptPoints are moments between the start of a container that is to be kept and the record of
// its attempt's end. The runner is killed there.
var keptPoints = []struct {
	at   string // it is about to ask docker for this, docker is at it, or has done it; "" is while the task runs
	left string // what "env gc" finds then
	kept bool   // as an environment
}{
	{at: "before run"},
	{left: "container"},
	{at: "before wait", left: "container"}, // the task has ended
	{at: "after wait", left: "container"},
	{at: "after rename", left: "container"},
	{at: "before commit", left: "container"},
	{at: "during commit", left: "container image"},
	{at: "after commit", left: "container image"},
	{at: "after diff", left: "container image"},
	{at: "before rm", left: "container", kept: true},
	{at: "after rm", kept: true},
}

// dockerStub is a docker that waits for its end where the runner comes to the point that stands in
// the file "point"; who that is stands in "at" then.
const dockerStub = `#!/bin/bash
d=%s docker=%s
[ -e $d/point ] && grep -qz '^runner$' /proc/$PPID/cmdline || exec $docker "$@"
read -r when what <$d/point
[ "$what" = "$1" ] || exec $docker "$@"
case $when in
during) setsid $docker "$@" >/dev/null 2>&1 </dev/null & ;;
after) $docker "$@" || exit ;;
esac
echo $PPID >$d/at.new
mv $d/at.new $d/at
exec sleep 300
`

// TestKeptKilled kills the runner of a job whose place is to be kept. What it leaves is an
// environment, or is found and removed; the user is told which, and all else stays.
func TestKeptKilled(t *testing.T) {
	docker, err := exec.LookPath("docker")
	must(t, err)
	dir, berth, _ := client(t)
	// Another user's things, or of another state directory, that look like those that go.
	foreign := ask(t, "create", "--label", "berth.version=1", "--label", "berth.attempt=x", "--label", "berth.env=x",
		"--label", "berth.job=x", "--label", "berth.user="+strconv.Itoa(os.Getuid()), "--label", "berth.home=/elsewhere", image, "true")
	theirs := ask(t, "commit", "--change", "LABEL berth.kept=x", foreign, "berth-kept:test-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { ask(t, "rm", foreign); ask(t, "image", "rm", theirs) })
	t.Run("at", func(t *testing.T) {
		for _, tc := range keptPoints {
			t.Run(strings.ReplaceAll(cmp.Or(tc.at, "while it runs"), " ", "-"), func(t *testing.T) {
				t.Parallel()
				k := &keptSite{t: t, berth: berth, dir: filepath.Join(dir, "at "+tc.at)}
				k.dir = strings.ReplaceAll(k.dir, " ", "-")
				for _, name := range []string{"bin", "tmp", "config/berth/profiles"} {
					must(t, os.MkdirAll(filepath.Join(k.dir, name), 0o700))
				}
				must(t, os.WriteFile(filepath.Join(k.dir, "config/berth/profiles/quick.toml"), []byte("beat = '500ms'\n"), 0o600))
				must(t, os.WriteFile(filepath.Join(k.dir, "bin/docker"), fmt.Appendf(nil, dockerStub, k.dir, docker), 0o700))
				t.Cleanup(k.nothingLeft)
				k.play(tc.at, tc.left, tc.kept)
			})
		}
	})
	ask(t, "container", "inspect", foreign)
	ask(t, "image", "inspect", theirs)
}

// keptSite is a state directory with a docker of its own.
type keptSite struct {
	t          *testing.T
	berth, dir string
}

// run runs berth, which must exit so, and returns what it wrote to both.
func (k *keptSite) run(code int, argv ...string) string {
	k.t.Helper()
	cmd := exec.Command(k.berth, argv...)
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), "BERTH_HOME="+k.state(), "XDG_CACHE_HOME="+filepath.Join(k.dir, "cache"), "XDG_CONFIG_HOME="+filepath.Join(k.dir, "config"),
		"TMPDIR="+filepath.Join(k.dir, "tmp"), "PATH="+filepath.Join(k.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if ee := new(exec.ExitError); err != nil && !errors.As(err, &ee) {
		k.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		k.t.Fatalf("berth %q: exit code %d, not %d: %s", argv, got, code, out)
	}
	return string(out)
}

func (k *keptSite) state() string { return filepath.Join(k.dir, "state") }

// has lists what the daemon has of it.
func (k *keptSite) has() (containers, images []string) {
	k.t.Helper()
	label := "label=berth.home=" + k.state()
	return strings.Fields(ask(k.t, "container", "ls", "--all", "--quiet", "--no-trunc", "--filter", label)),
		strings.Fields(ask(k.t, "image", "ls", "--quiet", "--no-trunc", "--filter", label))
}

// nothingLeft removes what a test that has failed leaves.
func (k *keptSite) nothingLeft() {
	containers, images := k.has()
	for _, left := range [][]string{append([]string{"container", "rm", "--force"}, containers...), append([]string{"image", "rm", "--force"}, images...)} {
		if len(left) > 3 {
			k.t.Errorf("left behind: %q", left[3:])
			ask(k.t, left...)
		}
	}
}

// submit submits a job that is to be kept.
func (k *keptSite) submit(script string) (id string) {
	k.t.Helper()
	return strings.TrimSpace(k.run(0, "submit", "--profile", "quick", "--scheduler", "local", "--backend", "docker", "--image", image,
		"--retry", "off", "--keep", "--", script))
}

// reach submits a job, and waits until its runner is where it is to be killed.
func (k *keptSite) reach(at string) (id string, runner int) {
	k.t.Helper()
	said := filepath.Join(k.dir, "at")
	if at == "" {
		id = k.submit("echo evidence >/evidence; echo begun; sleep 337")
		st, err := store.At(k.state())
		must(k.t, err)
		waitFor(k.t, func() bool {
			rec, err := st.Find(id)
			must(k.t, err)
			a := rec.Current()
			said, _ := os.ReadFile(filepath.Join(a.Dir, store.FileStdout))
			if a.Claim != nil {
				runner = a.Claim.PID
			}
			return a.Claim != nil && string(said) == "begun\n"
		})
		return id, runner
	}
	must(k.t, os.WriteFile(filepath.Join(k.dir, "point"), []byte(at+"\n"), 0o600))
	id = k.submit("echo evidence >/evidence; mkdir -p /deep/er; echo >/deep/er/f; echo >>/etc/passwd; rm /etc/issue")
	waitFor(k.t, func() bool { _, err := os.Stat(said); return err == nil })
	b, err := os.ReadFile(said)
	must(k.t, err)
	runner, err = strconv.Atoi(strings.TrimSpace(string(b)))
	must(k.t, err)
	must(k.t, os.Remove(filepath.Join(k.dir, "point")))
	return id, runner
}

func (k *keptSite) play(at, left string, kept bool) {
	t := k.t
	// What another job has left is not touched by any of it.
	other := k.submit("echo other >/left")
	k.run(0, "wait", other)
	id, runner := k.reach(at)
	short := jobs.Short(id)
	if at == "during commit" {
		waitFor(t, func() bool { _, images := k.has(); return len(images) == 2 })
	}
	containers, images := k.has()
	if out := k.run(0, "env", "gc"); out != "" {
		t.Errorf("removed of a job that is at its end: %s", out)
	}
	if c, i := k.has(); !slices.Equal(c, containers) || !slices.Equal(i, images) {
		t.Errorf("removed of a job that is at its end: %q %q; %q %q", c, i, containers, images)
	}
	must(t, syscall.Kill(runner, syscall.SIGKILL))
	k.run(5, "wait", "--timeout", "3m", id)

	// The user is told.
	status := k.run(0, "status", id)
	if kept {
		if !strings.Contains(status, "note\tthe place is kept as environment kept-"+short+", without a network") {
			t.Errorf("status: %s", status)
		}
		if out := k.run(0, "exec", "--env", "kept-"+short, "--", "cat /evidence; grep -c : /proc/net/dev; ls /.berth"); out != "evidence\n1\nio\nnode\n" {
			t.Errorf("what is kept: %q", out)
		}
		k.run(0, "env", "stop", "kept-"+short)
		// What it has changed, without what its mounts and its files are below.
		if out := k.run(0, "status", "--report", id); !strings.Contains(out, "container\tadded /deep/er/f\n") ||
			!strings.Contains(out, "container\tdeleted /etc/issue\n") ||
			!strings.Contains(out, "container\tchanged /etc/passwd\n") || strings.Contains(out, "changed /etc\n") || strings.Contains(out, " /.berth") {
			t.Errorf("report: %s", out)
		}
	} else if !strings.Contains(status, "note\tthe place was to be kept, and was not: its runner was killed") {
		t.Errorf("status: %s", status)
	}

	// What is left is told and goes, once; what is kept stays.
	for _, dry := range []string{"--dry-run", "--dry-run=false", "--dry-run=false"} {
		found := k.run(0, "env", "gc", dry)
		var what []string
		for line := range strings.Lines(found) {
			word := strings.Split(line, "\t")
			what = append(what, word[1])
			why := "its runner was killed before this was kept"
			if kept {
				why = "it was kept as environment kept-" + short
			}
			if !strings.Contains(line, why) {
				t.Errorf("found: %s", line)
			}
		}
		slices.Sort(what)
		if got := strings.Join(what, " "); got != left {
			t.Errorf("env gc %s found %q, not %q", dry, got, left)
		}
		if dry != "--dry-run" {
			left = ""
		}
	}
	k.run(0, "gc")
	if got, _ := filepath.Glob(filepath.Join(k.dir, "tmp/*")); len(got) > 0 {
		t.Errorf("scratch directories are left: %q", got)
	}
	k.old(t)
	names := []string{"kept-" + jobs.Short(other)}
	if kept {
		names = append(names, "kept-"+short)
	}
	entries, err := os.ReadDir(filepath.Join(k.state(), "envs"))
	must(t, err)
	slices.Sort(names)
	if got := slices.Collect(func(yield func(string) bool) {
		for _, e := range entries {
			if !yield(e.Name()) {
				return
			}
		}
	}); !slices.Equal(got, names) {
		t.Errorf("environments: %q, not %q", got, names)
	}
	if out := k.run(0, "exec", "--env", "kept-"+jobs.Short(other), "--", "cat /left"); out != "other\n" {
		t.Errorf("what another job has left: %q", out)
	}
	k.run(0, append([]string{"env", "rm"}, names...)...)
	if c, i := k.has(); len(c)+len(i) > 0 {
		t.Errorf("left: %q %q", c, i)
	}
}

// old makes what is half recorded a day old, and has it removed.
func (k *keptSite) old(t *testing.T) {
	t.Helper()
	half, err := filepath.Glob(filepath.Join(k.state(), "envs/.new-*"))
	must(t, err)
	for _, path := range half {
		then := time.Now().Add(-25 * time.Hour)
		must(t, os.Chtimes(path, then, then))
	}
	if out := k.run(0, "gc"); strings.Count(out, "/envs/.new-") != len(half) {
		t.Errorf("gc of %q: %s", half, out)
	}
	for _, path := range half {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// waitFor waits for what must come.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come within two minutes")
		}
	}
}
