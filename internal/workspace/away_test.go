package workspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/lease"
)

// looseBase is a repository of a few loose objects, prepared and changed.
func looseBase(t *testing.T) *fixture {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n", "dir/b": strings.Repeat("line\n", 50)})
	f.commit(map[string]string{"a": "2\n"})
	f.prepare()
	f.write(f.work(), map[string]string{"a": "3\n", "dir/b": strings.Repeat("line\n", 49) + "last\n", "new": "n\n"})
	return f
}

// What the result needs of its base is kept with the attempt: whatever becomes of
// the repository, the result is made, and comes in when the repository is back.
func TestRepositoryAway(t *testing.T) {
	object := func(f *fixture, rev string) string {
		id := f.git(f.repo, "rev-parse", rev)
		return filepath.Join(f.src.Repo, "objects", id[:2], id[2:])
	}
	for _, tc := range []struct {
		name       string
		leave      func(f *fixture)
		back       func(f *fixture) // nil is never
		kind       error
		says       string // of the delivery meanwhile
		noDelivery bool   // says nothing: it works
	}{
		{name: "moved", leave: func(f *fixture) { must(f.t, os.Rename(f.repo, f.repo+"2")) },
			back: func(f *fixture) { must(f.t, os.Rename(f.repo+"2", f.repo)) }, kind: ErrNotRepository, says: "is gone"},
		{name: "automount away", leave: func(f *fixture) {
			must(f.t, os.Rename(f.repo, f.repo+"2"))
			must(f.t, os.MkdirAll(filepath.Join(f.repo, ".git"), 0o700))
		}, back: func(f *fixture) {
			must(f.t, os.RemoveAll(f.repo))
			must(f.t, os.Rename(f.repo+"2", f.repo))
		}, kind: ErrNotRepository, says: "is no git repository"},
		{name: "a file", leave: func(f *fixture) {
			must(f.t, os.Rename(f.repo, f.repo+"2"))
			must(f.t, os.WriteFile(f.repo, nil, 0o600))
		}, kind: ErrNotRepository, says: "repository"},
		{name: "replaced", leave: func(f *fixture) {
			must(f.t, os.Rename(f.repo, f.repo+"2"))
			must(f.t, os.Mkdir(f.repo, 0o700))
			f.git(f.repo, "init", "-q")
			f.commit(map[string]string{"other": "1\n"})
		}, kind: ErrUnknownBase, says: "lacks commit "},
		{name: "base pruned", leave: func(f *fixture) {
			f.git(f.repo, "reset", "-q", "--hard", "HEAD^")
			f.git(f.repo, "reflog", "expire", "--expire=now", "--all")
			f.git(f.repo, "gc", "-q", "--prune=now")
		}, kind: ErrUnknownBase, says: "lacks commit "},
		{name: "object lost", leave: func(f *fixture) { must(f.t, os.Remove(object(f, "HEAD:dir"))) }, kind: ErrUnknownBase, says: "lacks objects of commit "},
		{name: "object damaged", leave: func(f *fixture) {
			p := object(f, "HEAD:dir/b")
			must(f.t, os.Chmod(p, 0o600))
			must(f.t, os.WriteFile(p, []byte("damaged"), 0o600))
		}, noDelivery: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := looseBase(t)
			base := f.git(f.repo, "rev-parse", "HEAD")
			tc.leave(f)
			res := f.collect(CollectOptions{Message: "m"})
			if !res.Changed || len(res.Files) != 3 {
				t.Fatalf("result: %+v", res)
			}
			if diff, err := os.ReadFile(filepath.Join(f.attempt, DiffFile)); err != nil || !strings.Contains(string(diff), "+last") || !strings.Contains(string(diff), "-2") {
				t.Errorf("diff: %v\n%s", err, diff)
			}
			if !tc.noDelivery {
				err := f.intake(res)
				if !errors.Is(err, tc.kind) || !strings.Contains(fmt.Sprint(err), tc.says) || tc.says == "lacks commit " && !strings.Contains(err.Error(), base) {
					t.Errorf("delivery: %v", err)
				}
			}
			for _, commit := range []string{res.Commit, ""} {
				checked := filepath.Join(t.TempDir(), "checked")
				must(t, f.g.Recheckout(testContext(t), f.attempt, f.src, commit, checked))
				want := map[string]string{res.Commit: "3\n", "": "2\n"}[commit]
				if got, err := os.ReadFile(filepath.Join(checked, "a")); err != nil || string(got) != want {
					t.Errorf("checked out %q: %q, %v", commit, got, err)
				}
				f.git(checked, "log", "-1")
			}
			if tc.back != nil {
				tc.back(f)
				back := filepath.Join(t.TempDir(), "back")
				must(t, f.g.Recheckout(testContext(t), f.attempt, f.src, res.Commit, back))
				same(t, "commits, with the history", f.git(back, "rev-list", "--count", "HEAD"), "3")
				must(t, f.intake(res))
				same(t, "branch", f.git(f.repo, "rev-parse", "refs/heads/"+testBranch), res.Commit)
				f.git(f.repo, "fsck", "--strict", "--full")
			}
		})
	}
}

// While delivery fails, nothing is left in the user's repository.
func TestIntakeLeavesNothing(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(i * i >> 3 * (i >> 5) >> 2)
	}
	for n := range 3 {
		f.write(f.work(), map[string]string{fmt.Sprint("big", n): string(noise[n:])})
	}
	res := f.collect(CollectOptions{Message: "m"})
	before := f.git(f.repo, "count-objects", "-v")
	whole := f.g.Run
	f.g.Run = func(ctx context.Context, c Cmd) error {
		if c.Dir == f.src.Repo { // a quota, as far as git can tell
			c.Args = append([]string{"sh", "-c", `trap "" XFSZ; ulimit -f 1; exec "$@"`, "sh"}, c.Args...)
		}
		return whole(ctx, c)
	}
	for range 3 {
		if err := f.intake(res); err == nil {
			t.Fatal("it was delivered")
		}
		same(t, "objects", f.git(f.repo, "count-objects", "-v"), before)
		if found := leftovers(t, f); len(found) > 0 {
			t.Errorf("left: %q", found)
		}
	}
	f.g.Run = whole
	must(t, f.intake(res))
	f.git(f.repo, "fsck", "--strict", "--full")
	if found := leftovers(t, f); len(found) > 0 {
		t.Errorf("left after delivery: %q", found)
	}
}

// leftovers are temporary names in the repository's objects and the attempt.
func leftovers(t *testing.T, f *fixture) (found []string) {
	t.Helper()
	for _, pattern := range []string{f.src.Repo + "/objects/tmp_*", f.src.Repo + "/objects/*/tmp_*", f.attempt + "/quarantine-*"} {
		m, err := filepath.Glob(pattern)
		must(t, err)
		found = append(found, m...)
	}
	return found
}

// A file system that is full when the objects are stored is said to be so, and
// holds nothing of the result.
func TestIntakeFull(t *testing.T) {
	f := newFixture(t)
	small := filepath.Join(filepath.Dir(f.repo), "small")
	must(t, os.Mkdir(small, 0o700))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small file system: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(small, 0)) })
	f.repo = filepath.Join(small, "repo")
	must(t, os.Mkdir(f.repo, 0o700))
	f.git(f.repo, "init", "-q")
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	noise := make([]byte, 700<<10)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(noise); i++ {
		noise[i] = byte(r.Uint32())
	}
	f.write(f.work(), map[string]string{"big": string(noise)})
	res := f.collect(CollectOptions{Message: "m"})
	filler := filepath.Join(small, "filler")
	must(t, os.WriteFile(filler, noise[:400<<10], 0o600))
	before := f.git(f.repo, "count-objects", "-v")
	if err := f.intake(res); !errors.Is(err, ErrSpace) || !strings.Contains(err.Error(), "bytes left") {
		t.Errorf("asked: %v", err)
	}
	defer func(old func(string) (int64, error)) { freeBytes = old }(freeBytes)
	freeBytes = func(string) (int64, error) { return 1 << 40, nil } // as where a quota is full
	for range 3 {
		if err := f.intake(res); !errors.Is(err, ErrSpace) || !strings.Contains(err.Error(), "quota") {
			t.Errorf("full: %v", err)
		}
		same(t, "objects", f.git(f.repo, "count-objects", "-v"), before)
	}
	must(t, os.Remove(filler))
	must(t, f.intake(res))
}

// The space is asked for before anything is written.
func TestIntakeAsksForSpace(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	res := f.changed("2\n")
	defer func(old func(string) (int64, error)) { freeBytes = old }(freeBytes)
	freeBytes = func(string) (int64, error) { return 1000, nil }
	err := f.intake(res)
	if !errors.Is(err, ErrSpace) || !strings.Contains(err.Error(), "1000 bytes") {
		t.Errorf("got %v", err)
	}
	freeBytes = func(string) (int64, error) { return 0, syscall.ENOSYS }
	must(t, f.intake(res))
}

// What killed clients have left goes, and only that.
func TestQuarantinesOfTheKilled(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	res := f.changed("2\n")
	me := lease.Self()
	dead, other, rebooted := me, me, me
	dead.Start = "1"
	other.Host = "elsewhere"
	rebooted.BootID = "0/1"
	long := time.Now().Add(-48 * time.Hour)
	objects := filepath.Join(f.src.Repo, "objects")
	var goes, stays []string
	for dir, prefix := range map[string]string{f.attempt: quarantinePrefix, objects: incomingPrefix} {
		make := func(name string, old bool) string {
			p := filepath.Join(dir, name)
			must(t, os.MkdirAll(filepath.Join(p, "pack"), 0o700))
			must(t, os.WriteFile(filepath.Join(p, "pack", "x"), nil, 0o400))
			if old {
				must(t, os.Chtimes(p, long, long))
			}
			return p
		}
		goes = append(goes, make(prefix+tagOf(dead)+"1", false), make(prefix+tagOf(rebooted)+"1", false), make(prefix+tagOf(other)+"2", true), make(prefix+"123", true))
		stays = append(stays, make(prefix+tagOf(me)+"1", true), make(prefix+tagOf(other)+"1", false), make(prefix+"124", false))
	}
	stays = append(stays, filepath.Join(objects, "tmp_objdir-incoming-x"))
	must(t, os.Mkdir(stays[len(stays)-1], 0o700))
	must(t, os.Chtimes(stays[len(stays)-1], long, long))
	must(t, f.intake(res))
	for _, p := range goes {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("it is still there: %s", p)
		}
	}
	for _, p := range stays {
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("it is gone: %s", p)
		}
	}
}

// An error about a directory that is gone names it, and not git's program.
func TestDirectoryGone(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	gone := filepath.Join(f.attempt, GitDir)
	must(t, os.Rename(gone, gone+"2"))
	_, err := f.g.Collect(testContext(t), f.attempt, f.src, CollectOptions{Branch: testBranch})
	if err == nil || !strings.Contains(err.Error(), "directory "+fmt.Sprintf("%q", gone)) {
		t.Errorf("got %v", err)
	}
}

// A partial clone that lacks something is refused when it is resolved, before
// anything is queued; one that has been completed is not.
func TestResolvePartialClone(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.commit(map[string]string{"a": "2\n"})
	f.git(f.repo, "config", "uploadpack.allowFilter", "true")
	f.git(f.repo, "config", "uploadpack.allowAnySHA1InWant", "true")
	for _, filter := range []string{"blob:none", "tree:0"} {
		part := filepath.Join(t.TempDir(), "part")
		f.git(filepath.Dir(part), "-c", "protocol.file.allow=always", "clone", "-q", "--filter="+filter, "file://"+f.repo, part)
		_, err := f.g.Resolve(testContext(t), part, "")
		var we *Error
		if !errors.As(err, &we) || !strings.Contains(we.Msg, "partial clone") || we.Tip == "" {
			t.Errorf("%s: %v", filter, err)
		}
		f.git(part, "-c", "protocol.file.allow=always", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "-q", "--refetch", "--no-filter")
		if _, err := f.g.Resolve(testContext(t), part, ""); err != nil {
			t.Errorf("%s, completed: %v", filter, err)
		}
	}
}
