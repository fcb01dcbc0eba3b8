package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

func TestCreate(t *testing.T) {
	s := open(t)
	n := sample(t)
	r, err := s.Create(n)
	must(t, err)
	got, err := s.Load(n.Spec.ID)
	must(t, err)
	if d := cmp.Diff(r, got); d != "" {
		t.Errorf("what Create returned is not what is read back:\n%s", d)
	}
	if d := cmp.Diff(n.Spec, got.Spec); d != "" {
		t.Error(d)
	}
	dir := got.Current().Dir
	for path, want := range map[string]string{
		filepath.Join(r.Dir, "task.md"): "# fix\n", filepath.Join(r.Dir, "prompt.md"): "fix it",
		ScriptPath(dir): "#!/bin/bash\nexec " + dir + "\n", filepath.Join(dir, "env"): "TOKEN=canary\x00",
	} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if JobDirOf(dir) != r.Dir {
		t.Errorf("the job of %s is %s", dir, JobDirOf(dir))
	}
	if p, err := Prompt(r.Dir, 6); err != nil || string(p) != "fix it" {
		t.Errorf("prompt %q, %v", p, err)
	}
	if _, err := s.Create(n); err == nil {
		t.Error("the same id was recorded twice")
	}
	if _, err := s.Load(n.Spec.ID); err != nil {
		t.Errorf("the second one has damaged the first: %v", err)
	}
}

// A record with workspaces beside the first one has a schema that earlier programs refuse;
// any other one has the schema that they read, whatever its maker wrote.
func TestCreateVersion(t *testing.T) {
	s := open(t)
	for want, further := range map[int][]jobs.WorkspaceSpec{1: nil, 2: {{Name: "lib", Repo: "/lib", GitDir: "/lib/.git"}}} {
		n := sample(t)
		n.Spec.Workspace, n.Spec.Further, n.Spec.Version = &jobs.WorkspaceSpec{Repo: "/app", GitDir: "/app/.git"}, further, 0
		r, err := s.Create(n)
		must(t, err)
		b, err := os.ReadFile(filepath.Join(r.Dir, fileJob))
		must(t, err)
		var v struct {
			Version int `json:"version"`
		}
		must(t, json.Unmarshal(b, &v))
		got, err := s.Load(n.Spec.ID)
		must(t, err)
		if v.Version != want || r.Spec.Version != want || got.Spec.Version != want || len(got.Spec.Further) != len(further) {
			t.Errorf("%d workspaces beside the first: written %d, made %d, read %d", len(further), v.Version, r.Spec.Version, got.Spec.Version)
		}
	}
}

// What cannot be recorded leaves nothing.
func TestCreateFails(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, n *New){
		"script": func(_ *Store, n *New) {
			n.Script = func(string) (string, error) { return "", errors.New("no script") }
		},
		"bad id": func(_ *Store, n *New) { n.Spec.ID = "../../x" },
		"no id":  func(_ *Store, n *New) { n.Spec.ID = "" },
		"in the way": func(s *Store, n *New) {
			must(t, os.MkdirAll(filepath.Join(s.JobDir(n.Spec.ID), "x"), 0o700))
		},
		"shard is a file": func(s *Store, n *New) {
			must(t, os.WriteFile(filepath.Dir(s.JobDir(n.Spec.ID)), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			n := sample(t)
			spoil(s, &n)
			if r, err := s.Create(n); err == nil || r != nil {
				t.Fatalf("created %v, %v", r, err)
			}
			must(t, filepath.WalkDir(s.Home(), func(path string, d fs.DirEntry, err error) error {
				if strings.HasPrefix(d.Name(), ".") || d.Name() == "env" {
					t.Errorf("left %s", path)
				}
				return err
			}))
			if list, err := s.List(); len(list) != 0 && name != "in the way" {
				t.Errorf("listed %v, %v", list, err)
			}
		})
	}
}

func TestFileModes(t *testing.T) {
	s := open(t) // whose parents are as a user's umask makes them
	defer syscall.Umask(syscall.Umask(0))
	r := create(t, s)
	dir := r.Current().Dir
	_, err := SetClaim(dir, jobs.Claim{Version: 1})
	must(t, err)
	_, err = SetCancel(r.Dir, jobs.Cancel{Version: 1})
	must(t, err)
	must(t, Beat(dir, 1, time.Now()))
	must(t, AppendEvent(dir, Event{Event: "x"}))
	age(t, s)
	s.index = filepath.Join(t.TempDir(), "cache", "index")
	fill(t, s, indexFrom, true)
	age(t, s)
	_, err = s.List()
	must(t, err)
	for _, root := range []string{s.Home(), filepath.Dir(s.index)} {
		must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fi, err := d.Info()
			want := fs.FileMode(0o600)
			if d.IsDir() {
				want = 0o700 | fs.ModeDir
			}
			if err == nil && fi.Mode() != want {
				t.Errorf("%s is %v", path, fi.Mode())
			}
			return err
		}))
	}
}

// TestKilled kills a process that records jobs, again and again: every record
// is whole, and every one that it was told of is there.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := open(t)
	var acked []string
	// On a busy machine a process needs longer to come anywhere, at last seconds.
	for n := 0; n < 15 || len(acked) == 0 && n < 150; n++ {
		cmd := child(t, "create", s.Home())
		var out strings.Builder
		cmd.Stdout = &out
		must(t, cmd.Start())
		time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond * time.Duration(1+(n/15)*(n/15)))
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		lines := strings.Split(out.String(), "\n")
		acked = append(acked, lines[:len(lines)-1]...) // the last is empty or torn
	}
	list, err := s.List()
	must(t, err)
	there := map[string]bool{}
	for _, r := range list {
		there[r.Spec.ID] = true
		for _, f := range []string{ScriptPath(r.Current().Dir), filepath.Join(r.Dir, "task.md"), filepath.Join(r.Dir, "prompt.md"), filepath.Join(r.Current().Dir, "env")} {
			if _, err := os.Stat(f); err != nil {
				t.Error(err)
			}
		}
	}
	for _, id := range acked {
		if !there[id] {
			t.Errorf("job %s was acknowledged and is not there", id)
		}
	}
	t.Logf("%d acknowledged, %d there", len(acked), len(list))
	if len(acked) == 0 {
		t.Error("no process came far enough")
	}

	// What the killed ones left goes after a day, and only that.
	left, err := filepath.Glob(filepath.Join(s.Home(), "jobs", "*", ".new-*"))
	must(t, err)
	t.Logf("%d left half made", len(left))
	long := time.Now().Add(-2 * leftFor)
	other := filepath.Join(filepath.Dir(list[0].Dir), ".new-notes")
	must(t, os.Mkdir(other, 0o700))
	gone := filepath.Join(filepath.Dir(list[0].Dir), prefixGone+list[0].Spec.ID)
	must(t, os.Mkdir(gone, 0o700))
	young := filepath.Join(filepath.Dir(list[0].Dir), prefixNew+list[0].Spec.ID)
	must(t, os.Mkdir(young, 0o700))
	for _, d := range append(left, other, gone) {
		must(t, os.Chtimes(d, long, long))
	}
	again, err := s.List()
	must(t, err)
	if len(again) != len(list) {
		t.Errorf("%d records became %d", len(list), len(again))
	}
	for _, d := range append(left, gone) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", d, err)
		}
	}
	for _, d := range []string{other, young} {
		if _, err := os.Stat(d); err != nil {
			t.Error(err)
		}
	}
}

func TestCreateOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	const many = 32
	var wg sync.WaitGroup
	wins := make(chan int, many)
	for i := range many {
		wg.Go(func() {
			won, err := CreateOnce(path, []byte(strconv.Itoa(i)))
			if err != nil {
				t.Error(err)
			}
			if won {
				wins <- i
			}
		})
	}
	wg.Wait()
	close(wins)
	if len(wins) != 1 {
		t.Fatalf("%d winners", len(wins))
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != strconv.Itoa(<-wins) {
		t.Errorf("the file holds %q, %v", b, err)
	}
	// A reply that was lost: the file is ours.
	if won, err := CreateOnce(path, mustRead(t, path)); !won || err != nil {
		t.Errorf("won %t, %v", won, err)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
	if _, err := CreateOnce(filepath.Join(dir, "none", "f"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	if won, err := CreateOnce(filepath.Join(dir, "d"), nil); won || err == nil {
		t.Errorf("won over a directory: %v", err)
	}
	// A name that exists and leads nowhere stays unseen; that is no win.
	must(t, os.Symlink("nowhere", filepath.Join(dir, "l")))
	defer func(d time.Duration) { hiddenFor = d }(hiddenFor)
	hiddenFor = 100 * time.Millisecond
	if won, err := CreateOnce(filepath.Join(dir, "l"), nil); won || err == nil {
		t.Errorf("won over a dead link: %v", err)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func TestCreateOnceProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const processes, files = 6, 60
	sum := 0
	outs := make([]strings.Builder, processes)
	wait := make([]func() error, processes)
	for i := range processes {
		cmd := child(t, "once", dir, strconv.Itoa(files))
		cmd.Stdout = &outs[i]
		must(t, cmd.Start())
		wait[i] = cmd.Wait
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	for i := range processes {
		must(t, wait[i]())
		n, err := strconv.Atoi(outs[i].String())
		must(t, err)
		sum += n
	}
	if sum != files {
		t.Errorf("%d files had %d winners", files, sum)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }) {
		t.Errorf("left temporary files in %v", entries)
	}
}
