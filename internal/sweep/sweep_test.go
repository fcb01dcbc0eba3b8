package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/internal/sweep/command"
	"berth/internal/sys/ids"
	"berth/jobs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T, root, name string, tasks int) *Sweep {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	s, err := Create(root, Spec{ID: id, Name: name, Words: []string{"p"}, Created: time.Now()}, 1, []byte("text"), func(add func(command.Task) error) error {
		for n := range tasks {
			task := command.Task{Number: n + 1, Repeat: n % 3, Params: []command.Param{{Name: "z", Text: fmt.Sprint(n)}, {Name: "a", Text: "\"é\n\x01\\"}}}
			task.ID = command.ID{byte(n), byte(n >> 8), 7}
			if err := add(task); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
	return s
}

// The table gives back what was written, from any task on, and names tasks.
func TestTable(t *testing.T) {
	root := t.TempDir()
	s := made(t, root, "s", 700)
	for _, r := range [][2]int{{1, 1}, {256, 258}, {257, 257}, {512, 513}, {700, 700}, {1, 700}} {
		n := r[0]
		must(t, s.Tasks(r[0], r[1], func(got command.Task) error {
			a, _ := command.Find(got.Params, "a")
			z, _ := command.Find(got.Params, "z")
			if got.Number != n || got.Repeat != (n-1)%3 || a != "\"é\n\x01\\" || z != fmt.Sprint(n-1) || got.ID != (command.ID{byte(n - 1), byte((n - 1) >> 8), 7}) {
				t.Errorf("task %d: %+v", n, got)
			}
			n++
			return nil
		}))
		if n != r[1]+1 {
			t.Errorf("%v: up to %d", r, n)
		}
	}
	if err := s.Tasks(700, 701, func(command.Task) error { return nil }); err == nil {
		t.Error("a task behind the last")
	}
	for word, want := range map[string]int{"17": 17, "0a0007": 11, "bc0207": 701 - 0} {
		got, err := s.Task(word)
		if want == 701 {
			if jobs.KindOf(err) != jobs.KindNotFound {
				t.Error(err)
			}
		} else if err != nil || got.Number != want {
			t.Errorf("%s: %+v %v", word, got, err)
		}
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != Files+2 {
		t.Errorf("%v %v", entries, err)
	}
}

// A line without escapes is read as JSON reads it, and no other one is.
func TestPlainTask(t *testing.T) {
	id := command.ID{1, 0xab, 15: 9}
	for _, task := range []command.Task{{ID: id}, {ID: id, Repeat: 12}, {ID: id, Params: []command.Param{{Name: "b", Text: "x,y:{}"}, {Name: "a"}}},
		{ID: id, Repeat: 3, Params: []command.Param{{Name: "b", Text: "1e-5"}}}} {
		line := appendTask(nil, task)
		got, ok := plainTask(line)
		want, err := parseTask(append(bytes.TrimSuffix(bytes.Clone(line), []byte("}\n")), " }\n"...), 0) // by JSON
		if err != nil || !ok || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v, %v", line, got, want, err)
		}
		for i := range line {
			if _, ok := plainTask(line[:i]); ok {
				t.Errorf("%q was read", line[:i])
			}
		}
	}
	if _, ok := plainTask(appendTask(nil, command.Task{Params: []command.Param{{Name: "a", Text: "\""}}})); ok {
		t.Error("an escape was read")
	}
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	if _, err := Find(root, ""); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
	a, b := made(t, root, "a", 1), made(t, root, "b", 1)
	c := made(t, root, "a", 1)
	for word, want := range map[string]*Sweep{"": c, "a": c, "b": b, a.Spec.ID: a, jobs.Short(b.Spec.ID): b} {
		if got, err := Find(root, word); err != nil || got.Dir != want.Dir {
			t.Errorf("%q: %v", word, err)
		}
	}
	if _, err := Find(root, "none"); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
}

// A sweep whose tasks are wrong leaves nothing.
func TestNothingLeft(t *testing.T) {
	root := t.TempDir()
	wrong := errors.New("wrong")
	_, err := Create(root, Spec{ID: "00000000-11"}, 1, nil, func(add func(command.Task) error) error {
		must(t, add(command.Task{Number: 1}))
		return wrong
	})
	if left, _ := filepath.Glob(filepath.Join(root, "*", "*")); !errors.Is(err, wrong) || len(left) != 0 {
		t.Errorf("%v, %q is left", err, left)
	}
}

func TestBatchOf(t *testing.T) {
	for _, c := range [][3]int{{1, 1, 1}, {10_000, 2, 100}, {1_000_000, 8, 2500}, {10_000_000, 1, 4096}, {1_000_000, 1_000_000, 250}} {
		if got := BatchOf(c[0], c[1]); got != c[2] {
			t.Errorf("%v: %d", c, got)
		}
	}
}

func TestWorkers(t *testing.T) {
	s := made(t, t.TempDir(), "s", 1)
	for want := range uint32(3) {
		if n, dir, err := s.NewWorker(); err != nil || n != want+1 || dir != s.WorkerDir(n) {
			t.Errorf("%d %s %v", n, dir, err)
		}
	}
	must(t, os.MkdirAll(s.WorkerDir(500), 0o700))
	if n, _, err := s.NewWorker(); err != nil || n != 501 {
		t.Errorf("%d %v", n, err)
	}
	must(t, s.Cancel())
	must(t, s.Cancel())
	if !s.Cancelled() {
		t.Error("not cancelled")
	}
	must(t, s.Resume())
	must(t, s.Resume())
	if s.Cancelled() {
		t.Error("cancelled still")
	}
}
