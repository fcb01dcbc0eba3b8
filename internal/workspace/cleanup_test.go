package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCleanup(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	host := t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "mine"), nil, 0o600))
	must(t, os.Chmod(host, 0o500))
	defer func() { must(t, os.Chmod(host, 0o700)) }()
	f.write(f.work(), map[string]string{"ro/deep/x": "1\n", "none/x": "1\n", "out": "->" + host, "ro/out": "->" + host})
	for _, d := range []string{"ro/deep", "ro", "none"} {
		must(t, os.Chmod(filepath.Join(f.work(), d), map[bool]os.FileMode{true: 0, false: 0o500}[d == "none"]))
	}
	must(t, os.Mkdir(filepath.Join(f.attempt, quarantinePrefix+"1"), 0o700))
	must(t, os.Mkdir(filepath.Join(f.attempt, ChildPrefix+"back-1"), 0o700))
	must(t, os.WriteFile(filepath.Join(f.attempt, ChildPrefix+"0001.bundle"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(f.attempt, "exit.json"), nil, 0o600))
	// Deeper than there are file descriptors, and than a path may be long.
	cmd := exec.CommandContext(testContext(t), "sh", "-c", `i=0; while [ $i -lt 300 ]; do mkdir ddddddddddddddddddddddddddddddd && cd -P ddddddddddddddddddddddddddddddd && echo > f || exit 1; i=$((i+1)); done`)
	cmd.Dir = f.work()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("no deep tree: %v %s", err, out)
	}
	must(t, os.Chmod(f.work(), 0o500))
	must(t, Cleanup(f.attempt))
	must(t, Cleanup(f.attempt))
	left, err := os.ReadDir(f.attempt)
	must(t, err)
	if len(left) != 1 || left[0].Name() != "exit.json" {
		t.Errorf("left: %v", left)
	}
	fi, err := os.Stat(host)
	must(t, err)
	if _, err := os.Stat(filepath.Join(host, "mine")); err != nil || fi.Mode().Perm() != 0o500 {
		t.Errorf("a link was followed: %v %v", err, fi.Mode())
	}
	must(t, Cleanup(filepath.Join(f.attempt, "none")))
}

func TestCleanupDoesNotFollowWork(t *testing.T) {
	attempt, host := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(host, "mine"), nil, 0o600))
	must(t, os.Symlink(host, filepath.Join(attempt, WorkDir)))
	must(t, Cleanup(attempt))
	if _, err := os.Stat(filepath.Join(host, "mine")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(attempt); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Root may do everything, so what a user sees is tried as a user: the test
// binary runs once more under another uid.
func TestWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the tests below run as they are")
	}
	// Below a directory that other users can reach.
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	bin := filepath.Join(dir, "test")
	must(t, os.WriteFile(bin, self, 0o755))
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o700))
	must(t, os.Chown(tmp, 65534, 65534))
	cmd := exec.CommandContext(testContext(t), bin, "-test.v", "-test.run=^(TestUnreadable|TestTopUnreadable|TestCleanup|TestRoundTrip|TestReadOnlyRepository|TestArtifactsReach)$")
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp}
	cmd.SysProcAttr = asNobody()
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "no tests to run") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything; see TestWithoutRoot")
	}
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", "dir/b": "1\n", "c": "1\n", "d": "1\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "2\n", "dir/b": "2\n", "new": "1\n", "newdir/x": "1\n", "c": "2\n", "noexec/x": "1\n"})
	for name, mode := range map[string]os.FileMode{"a": 0, "dir": 0, "new": 0, "newdir": 0, "noexec": 0o600, "d": 0o200} {
		must(t, os.Chmod(filepath.Join(f.work(), name), mode))
	}
	res := f.collect(CollectOptions{})
	same(t, "changes", f.statuses(res), map[Path]Status{"c": Modified})
	why := skippedPaths(res)
	for _, p := range []Path{"a", "d", "dir", "new", "newdir", "noexec"} {
		if !strings.Contains(why[p], "permission denied") {
			t.Errorf("%s: %q", p, why[p])
		}
	}
	same(t, "left out", len(why), 6)
	must(t, f.intake(res))
	same(t, "the base's version", f.git(f.repo, "show", testBranch+":dir/b"), "1")
}

func TestReadOnlyRepository(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root writes everything; see TestWithoutRoot")
	}
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	objects := filepath.Join(f.repo, ".git", "objects")
	must(t, os.Chmod(objects, 0o500))
	defer func() { must(t, os.Chmod(objects, 0o700)) }()
	f.prepare()
	res := f.changed("2\n")
	if err := f.intake(res); err == nil || !strings.Contains(err.Error(), "objects") {
		t.Errorf("got %v", err)
	} else {
		t.Log(err)
	}
}
