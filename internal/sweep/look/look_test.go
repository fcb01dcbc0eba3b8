package look

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/ids"
	"berth/jobs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// did is what a task of a test has done.
type did struct {
	params  map[string]string
	state   journal.State
	code    uint8
	took    time.Duration
	stdout  string
	stderr  string
	metrics string
}

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// ran is a sweep whose tasks did this, one after the other.
func ran(t testing.TB, all ...did) *Look {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	s, err := sweep.Create(t.TempDir(), sweep.Spec{ID: id, Name: "s", Words: []string{"p"}, Slots: 1, Workdir: t.TempDir(), Created: epoch}, 1, nil,
		func(add func(command.Task) error) error {
			for n, d := range all {
				task := command.Task{ID: command.ID{byte(n), byte(n >> 8), 1}}
				for name, text := range d.params {
					task.Params = append(task.Params, command.Param{Name: name, Text: text})
				}
				if err := add(task); err != nil {
					return err
				}
			}
			return nil
		})
	must(t, err)
	_, dir, err := s.NewWorker()
	must(t, err)
	w, err := journal.Create(dir)
	must(t, err)
	now := epoch
	for n, d := range all {
		if d.state == journal.Waiting {
			continue
		}
		r := journal.Record{Kind: journal.End, State: d.state, Code: d.code, Round: 1, Generation: 1, Task: uint32(n + 1), Began: now, Took: d.took, Worker: 1, Memory: 1 << 20}
		for _, o := range []struct {
			stream journal.Stream
			text   string
		}{{journal.Stdout, d.stdout}, {journal.Stderr, d.stderr}, {journal.Progress, d.metrics}} {
			r.Output, err = w.Output(r.Task, 1, o.stream, r.Output, []byte(o.text))
			must(t, err)
		}
		begin := r
		begin.Kind, begin.State, begin.Took, begin.Output = journal.Start, journal.Running, 0, journal.Place{}
		must(t, w.Add(begin))
		must(t, w.Add(r))
		now = now.Add(d.took)
	}
	must(t, w.Close())
	f, err := s.Fold()
	must(t, err)
	l := New(s, f)
	t.Cleanup(l.Close)
	return l
}

func TestFailures(t *testing.T) {
	var all []did
	for n := range 20 {
		d := did{state: journal.OK}
		switch {
		case n%5 == 1:
			d = did{state: journal.Failed, code: 3, stderr: fmt.Sprintf("trace\nat 0x%x: bad value %d\n\n", n+4096, n)}
		case n == 2, n == 3:
			d = did{state: journal.Failed, code: 3, stdout: fmt.Sprintf("other %d\rdone %d", n, n)}
		}
		all = append(all, d)
	}
	f, err := ran(t, all...).Failures()
	must(t, err)
	if f.Failed != 6 || f.Looked != 6 || len(f.Groups) != 2 {
		t.Fatalf("%+v", f)
	}
	if g := f.Groups[0]; g.Count != 4 || g.LastLine != "at 0x1001: bad value 1" || fmt.Sprint(g.Examples) != "[2 7 12 17]" || g.Class != jobs.ClassTask || g.State != "failed" || g.Exit != 3 {
		t.Errorf("%+v", g)
	}
	if g := f.Groups[1]; g.Count != 2 || g.LastLine != "done 2" {
		t.Errorf("%+v", g)
	}
}

func TestWhere(t *testing.T) {
	l := ran(t, did{params: map[string]string{"lr": "0.1"}, state: journal.OK, took: 3 * time.Second},
		did{params: map[string]string{"lr": "1e-2"}, state: journal.Failed, code: 7}, did{params: map[string]string{"lr": "1"}})
	for text, want := range map[string]string{"lr < 0.05": "[[2 2]]", "state == 'waiting' or seconds > 2": "[[1 1] [3 3]]", "exit == 7": "[[2 2]]", "memory == 1": "[[1 2]]"} {
		holds, err := Where(text)
		must(t, err)
		var got sweep.Numbers
		must(t, l.Rows(l.All(), func(r Row) error {
			ok, err := holds(r)
			if ok {
				got.Add(r.Number)
			}
			return err
		}))
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if _, err := Where("lr <"); err == nil {
		t.Error("half a condition")
	}
}

// Of a flood the last whole lines count, and a line that is cut is no metric.
func TestMetricsFlood(t *testing.T) {
	l := ran(t, did{params: map[string]string{"x": "1"}, state: journal.OK, metrics: "first=1\n" + strings.Repeat("good=5\n", 60_000) + "a\x1bb=1\nc=\x1b[2J\n"})
	must(t, l.Rows(l.All(), func(r Row) error {
		all, err := l.Metrics(r.Record)
		if fmt.Sprint(all) != fmt.Sprint([]Value{{"good", []byte("5")}}) {
			t.Errorf("%s", all)
		}
		return err
	}))
}
