package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within waits for what is to be so.
func within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for until := time.Now().Add(limit); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// made is a sweep of so many tasks, with a parameter n.
func made(t testing.TB, tasks, workers int, words ...string) *sweep.Sweep {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	s, err := sweep.Create(t.TempDir(), sweep.Spec{ID: id, Name: "s", Words: words, Script: len(words) == 1, Slots: 2, Workdir: t.TempDir()}, workers, nil, numbered(tasks))
	must(t, err)
	return s
}

// numbered are so many tasks with a parameter n.
func numbered(tasks int) func(add func(command.Task) error) error {
	return func(add func(command.Task) error) error {
		for n := range tasks {
			task := command.Task{Number: n + 1, Params: []command.Param{{Name: "n", Text: fmt.Sprint(n + 1)}}}
			task.ID[15], task.ID[14] = byte(n), byte(n>>8)
			if err := add(task); err != nil {
				return err
			}
		}
		return nil
	}
}

func config(t testing.TB, s *sweep.Sweep) Config {
	return Config{Sweep: s, Env: []string{"PATH=" + os.Getenv("PATH")}, Log: t.Logf}
}

// output is what a task has written, with the exit code.
func output(t *testing.T, s *sweep.Sweep, f *journal.Fold, task uint32) (text string, code int) {
	t.Helper()
	_, r, err := f.Record(task, s.WorkerDir)
	must(t, err)
	if r == nil {
		return "nothing", -1
	}
	var b strings.Builder
	in := journal.NewReader(s.WorkerDir)
	defer in.Close()
	must(t, in.Output(r, func(f journal.Frame) error {
		fmt.Fprintf(&b, "%d:%s", f.Stream, f.Data)
		return nil
	}))
	return b.String(), int(r.Code)
}

func TestRun(t *testing.T) {
	s := made(t, 20, 1, `echo out {n} "$BERTH_TASK_NUMBER" $BERTH_PARAM_n; echo err >&2; [ {n} != 7 ] || exit 3; [ {n} != 8 ] || kill -9 $$`)
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if f.Done() != 20 || f.Count(journal.OK) != 18 || f.State(7) != journal.Failed || f.State(8) != journal.Killed {
		t.Errorf("%d done, %d ok, %v, %v", f.Done(), f.Count(journal.OK), f.State(7), f.State(8))
	}
	if text, code := output(t, s, f, 7); text != "1:out 7 7 7\n2:err\n" || code != 3 {
		t.Errorf("%q %d", text, code)
	}
	// Nothing is left: another worker ends at once.
	must(t, Run(t.Context(), config(t, s)))
	f, err = s.Fold()
	must(t, err)
	if _, r, err := f.Record(7, s.WorkerDir); err != nil || r.Worker != 1 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestPrograms(t *testing.T) {
	for program, want := range map[string]int{"no-such-program": 127, "/": 126, "/no/such": 127} {
		s := made(t, 1, 1, program, "{n}")
		must(t, Run(t.Context(), config(t, s)))
		f, err := s.Fold()
		must(t, err)
		if text, code := output(t, s, f, 1); code != want || f.State(1) != journal.NoStart || !strings.HasPrefix(text, "2:berth: ") {
			t.Errorf("%s: %d %q", program, code, text)
		}
	}
}

// Several workers at once: each task is run once.
func TestWorkers(t *testing.T) {
	s := made(t, 120, 3, `echo {n} >>../ran.$$; cat /dev/null`)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := Run(t.Context(), config(t, s)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 120 {
		t.Errorf("%d of 120", f.Count(journal.OK))
	}
	ran := map[string]int{}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(s.Spec.Workdir), "ran.*"))
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		for line := range strings.Lines(string(b)) {
			ran[line]++
		}
	}
	for line, n := range ran {
		if n != 1 {
			t.Errorf("%q ran %d times", line, n)
		}
	}
	if len(ran) != 120 {
		t.Errorf("%d ran", len(ran))
	}
}

// A worker that is stopped gives back what it has, and blames no task; the next one
// goes on where it was.
func TestStopped(t *testing.T) {
	s := made(t, 4, 1, `if [ {n} = 2 ] && ! [ -e gone ]; then touch here; sleep 600; fi; echo {n}`)
	c := config(t, s)
	c.Slots = 1
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(s.Spec.Workdir, "here")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	must(t, Run(ctx, c))
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "gone"), nil, 0o600))
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 1 || f.State(1) != journal.OK {
		t.Errorf("%d", f.Done())
	}
	must(t, Run(t.Context(), c))
	f, err = s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 4 {
		t.Errorf("%d of 4", f.Count(journal.OK))
	}
	if _, r, err := f.Record(2, s.WorkerDir); err != nil || r.Deaths != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

// died is a worker that has recorded these starts and ends, and is gone.
func died(t *testing.T, s *sweep.Sweep, deaths uint8, ends, starts []uint32) {
	t.Helper()
	n, dir, err := s.NewWorker()
	must(t, err)
	w, err := journal.Create(dir)
	must(t, err)
	var h *claims.Held
	board := claims.New(s.Claims(1), n, func(uint32) bool { return true })
	h, _, err = board.Next(0)
	must(t, err)
	if h == nil {
		t.Fatal("nothing to claim")
	}
	for _, task := range starts {
		must(t, w.Add(journal.Record{Kind: journal.Start, Round: 1, Generation: uint16(h.Generation), Task: task, Deaths: deaths, Worker: n}))
	}
	for _, task := range ends {
		must(t, w.Add(journal.Record{Kind: journal.End, State: journal.Failed, Code: 42, Round: 1, Generation: uint16(h.Generation), Task: task, Worker: n}))
	}
	must(t, w.Close())
	must(t, os.WriteFile(filepath.Join(dir, claims.EndFile), nil, 0o600))
}

// What a worker that is gone has done is taken over and not run again; a task under
// which three have ended is set aside.
func TestTakeOver(t *testing.T) {
	s := made(t, 5, 1, `echo {n}`)
	s.Spec.Batch = 5
	died(t, s, 0, []uint32{1}, []uint32{1, 3, 4})
	died(t, s, 1, nil, []uint32{3})
	died(t, s, 2, nil, []uint32{3})
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if f.State(1) != journal.Failed || f.State(3) != journal.SetAside || f.Count(journal.OK) != 3 {
		t.Errorf("%v %v, %d ok", f.State(1), f.State(3), f.Count(journal.OK))
	}
	if w, r, err := f.Record(1, s.WorkerDir); err != nil || w != 4 || r.Kind != journal.Adopted || r.Worker != 1 || r.Code != 42 || r.Generation != 4 {
		t.Errorf("%d %+v %v", w, r, err)
	}
	if _, r, err := f.Record(4, s.WorkerDir); err != nil || r.Deaths != 1 {
		t.Errorf("%+v %v", r, err)
	}
}

// Tasks that failed run again in a round of their own, among those that another round
// has brought; what is withdrawn does not run.
func TestRounds(t *testing.T) {
	s := made(t, 6, 1, `[ {n} != 2 ] && [ {n} != 5 ] || test -e good`)
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.Failed) != 2 {
		t.Errorf("%d failed", f.Count(journal.Failed))
	}
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "good"), nil, 0o600))
	_, err = s.AddRound(sweep.Round{Kind: sweep.RoundRetry, Runs: sweep.Numbers{{2, 2}, {5, 5}}}, 1, nil)
	must(t, err)
	old, err := sweep.Open(s.Dir)
	must(t, err)
	more := func(_ *sweep.Round, add func(command.Task) error) error {
		for n := range 3 {
			if err := add(command.Task{ID: command.ID{1, byte(n)}, Params: []command.Param{{Name: "n", Text: fmt.Sprint(7 + n)}}}); err != nil {
				return err
			}
		}
		return nil
	}
	_, err = s.AddRound(sweep.Round{Kind: sweep.RoundAdd}, 1, more)
	must(t, err)
	if _, err = old.AddRound(sweep.Round{Kind: sweep.RoundAdd}, 1, more); !errors.Is(err, sweep.ErrRoundTaken) {
		t.Error(err)
	}
	_, err = s.AddRound(sweep.Round{Kind: sweep.RoundResume, Withdrawn: sweep.Numbers{{1, 1}, {8, 8}}}, 1, nil)
	must(t, err)
	f, err = s.Fold()
	must(t, err)
	if f.Left() != 4 || f.Count(journal.Withdrawn) != 1 || f.State(2) != journal.Waiting {
		t.Errorf("%d left, %d withdrawn", f.Left(), f.Count(journal.Withdrawn))
	}
	must(t, Run(t.Context(), config(t, s)))
	f, err = s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 8 || f.Left() != 0 || f.State(8) != journal.Withdrawn {
		t.Errorf("%d ok, %d left, %v", f.Count(journal.OK), f.Left(), f.State(8))
	}
	if _, r, err := f.Record(5, s.WorkerDir); err != nil || r.Round != 2 {
		t.Errorf("%+v %v", r, err)
	}
	if task, err := s.Task("9"); err != nil || task.Number != 9 || task.ID[1] != 2 {
		t.Errorf("%+v %v", task, err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.Dir, "tasks.*")); len(files) != 4 {
		t.Errorf("%q", files)
	}
}

// A process that was killed: its batch is another's when its beat was silent.
func TestKilled(t *testing.T) {
	s := made(t, 3, 1, `echo {n}`)
	s.Spec.Batch = 3
	died(t, s, 0, nil, []uint32{2})
	dir := s.WorkerDir(1)
	must(t, os.Remove(filepath.Join(dir, claims.EndFile)))
	me := lease.Self()
	w := &worker{Config: Config{}, dir: dir}
	must(t, w.record(claims.WorkerFile, lease.Process{Host: me.Host, BootID: me.BootID, PID: 1 << 22, Start: "1"}))
	c := config(t, s)
	c.Beat = 20 * time.Millisecond
	must(t, Run(t.Context(), c))
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 3 {
		t.Errorf("%d of 3", f.Count(journal.OK))
	}
}

// Much output: the head and the tail of each stream are kept.
func TestMuch(t *testing.T) {
	s := made(t, 1, 1, `head -c 30000000 /dev/zero | tr '\0' a; echo; echo end; printf 'no line end' >&2`)
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	text, _ := output(t, s, f, 1)
	if len(text) > 10<<20 || !strings.Contains(text, "\n[berth: 20562") || !strings.Contains(text, "a\nend\n2:no line end") {
		t.Errorf("%d bytes, ending in %q", len(text), text[max(0, len(text)-80):])
	}
}

// What a task writes to its file of metrics is kept, while it runs and at its end; what it
// puts in the file's place is not read, and the next task has a file of its own.
func TestMetrics(t *testing.T) {
	s := made(t, 4, 1, `case {n} in
1) printf 'loss=1\nlo' >>"$BERTH_METRICS"; until test -e on; do sleep 0.01; done; printf 'ss=2\nacc=3' >>"$BERTH_METRICS" ;;
2) test -s "$BERTH_METRICS" && exit 1; rm "$BERTH_METRICS"; ln -s /etc/passwd "$BERTH_METRICS" ;;
3) mkfifo "$BERTH_METRICS"x; test -s "$BERTH_METRICS" && exit 1; echo x=1 >"$BERTH_METRICS" ;;
esac; exit 0`)
	c := config(t, s)
	c.Slots = 1
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), c) }()
	in := journal.NewReader(s.WorkerDir)
	defer in.Close()
	metrics := func(f *journal.Fold, task uint32) string {
		_, rec, err := in.Record(f, task)
		must(t, err)
		if rec == nil {
			return ""
		}
		tail, err := in.Tail(rec, 1000, journal.Progress)
		must(t, err)
		return string(tail[journal.Progress])
	}
	for f := must1(s.Fold())(t); metrics(f, 1) != "loss=1\n"; f = must1(s.Fold())(t) {
		time.Sleep(10 * time.Millisecond)
		if t.Context().Err() != nil {
			t.Fatal("the metrics of a task that runs are not seen")
		}
	}
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "on"), nil, 0o600))
	must(t, <-done)
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 4 || metrics(f, 1) != "loss=1\nloss=2\nacc=3" || metrics(f, 2) != "" || metrics(f, 3) != "x=1\n" || metrics(f, 4) != "" {
		t.Errorf("%d ok, %q %q %q", f.Count(journal.OK), metrics(f, 1), metrics(f, 2), metrics(f, 3))
	}
	if left, _ := filepath.Glob(filepath.Join(s.WorkerDir(1), "metrics.?")); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

func must1[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T { t.Helper(); must(t, err); return v }
}

// Before the canary has succeeded nothing else begins; what it did counts, and it is run
// once. One that fails pauses the sweep.
func TestCanary(t *testing.T) {
	s := made(t, 30, 3, `echo {n} >>ran; test -e good || test {n} != 1`)
	s.Spec.Canary = true
	var all sync.WaitGroup
	run := func() {
		t.Helper()
		for range 3 {
			all.Go(func() {
				if err := Run(t.Context(), config(t, s)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	run()
	f, err := s.Fold()
	must(t, err)
	p := s.Paused()
	if p == nil || !p.Trouble || p.Why != "the canary, task 1, did not succeed: failed" || f.Done() != 1 || f.State(1) != journal.Failed {
		t.Errorf("%+v, %d done", p, f.Done())
	}
	must(t, s.Resume())
	run()
	f, err = s.Fold()
	must(t, err)
	ran, err := os.ReadFile(filepath.Join(s.Spec.Workdir, "ran"))
	must(t, err)
	if f.Done() != 30 || f.Count(journal.OK) != 29 || strings.Count(string(ran), "\n") != 30 {
		t.Errorf("%d done, %d ok, %q", f.Done(), f.Count(journal.OK), ran)
	}
	if _, r, err := f.Record(1, s.WorkerDir); err != nil || r.Kind != journal.Adopted {
		t.Errorf("%+v %v", r, err)
	}
}

// More errors than may be pause the sweep; no task is lost by that.
func TestErrorRate(t *testing.T) {
	s := made(t, 100, 1, `test {n} -lt 9`)
	s.Spec.StopRate = 0.2
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if p := s.Paused(); p == nil || !p.Trouble || f.Done() < fewestResults || f.Done() > 20 || f.Count(journal.Running) != 0 {
		t.Errorf("%+v, %d done", p, f.Done())
	}
	must(t, Run(t.Context(), config(t, s))) // and another worker runs none
	g, err := s.Fold()
	must(t, err)
	if g.Done() != f.Done() {
		t.Errorf("%d done, then %d", f.Done(), g.Done())
	}
	must(t, s.Resume())
	s.Spec.StopRate = 0
	must(t, Run(t.Context(), config(t, s)))
	if f, err = s.Fold(); err != nil || f.Count(journal.OK) != 8 || f.Done() != 100 {
		t.Errorf("%d ok, %v", f.Count(journal.OK), err)
	}
}

// So many tasks run at once and no more, of all workers together.
func TestThrottle(t *testing.T) {
	s := made(t, 12, 1, `mkdir here && sleep 0.01 && rmdir here`)
	must(t, s.Throttle(1))
	c := config(t, s)
	c.Slots = 4
	must(t, Run(t.Context(), c))
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 12 {
		t.Errorf("%d of 12", f.Count(journal.OK))
	}
	must(t, s.Throttle(0))
	must(t, s.Throttle(0))
	if s.Throttled() != 0 {
		t.Error("throttled still")
	}
	// Workers that live share it.
	for n := range uint32(3) {
		_, dir, err := s.NewWorker()
		must(t, err)
		must(t, store.Beat(dir, 0, time.Now()))
		w := &worker{Config: Config{Sweep: s}, me: n + 2}
		if got, want := w.share(4, time.Now()), []int{4, 2, 1}[n]; got != want {
			t.Errorf("the last of %d workers may run %d, not %d", n+1, got, want)
		}
	}
}

func TestCancel(t *testing.T) {
	s := made(t, 2, 1, `sleep 600`)
	must(t, s.Cancel())
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), config(t, s)) }()
	must(t, <-done)
	f, err := s.Fold()
	must(t, err)
	if f.Done() != 0 {
		t.Errorf("%d done", f.Done())
	}
}

// A cancellation or a pause that is taken back before a worker has looked ends that worker all the
// same, and none that begins afterwards.
func TestTakenBackUnseen(t *testing.T) {
	for name, end := range map[string]func(*sweep.Sweep) error{
		"cancel": (*sweep.Sweep).Cancel,
		"pause":  func(s *sweep.Sweep) error { return s.Pause(sweep.Pause{Why: "a person"}) },
	} {
		t.Run(name, func(t *testing.T) {
			// Whoever makes the pipe's other end lets the task go on: a cancellation ends it without.
			s := made(t, 2, 1, `test -p gate || exit 0; : >began; cat gate`)
			s.Spec.Slots = 1
			gate := filepath.Join(s.Spec.Workdir, "gate")
			must(t, unix.Mkfifo(gate, 0o600))
			done, saw := make(chan error, 1), make(chan struct{})
			var once sync.Once
			c := config(t, s)
			c.Log = func(format string, args ...any) {
				t.Logf(format, args...)
				once.Do(func() { close(saw) })
			}
			go func() { done <- Run(t.Context(), c) }()
			within(t, 10*time.Second, "a task runs", func() bool {
				_, err := os.Stat(filepath.Join(s.Spec.Workdir, "began"))
				return err == nil
			})
			must(t, end(s))
			must(t, s.Resume())
			if s.Cancelled() || s.Paused() != nil || !s.Ending(1) {
				t.Fatal("the worker is not told, or all are")
			}
			select {
			case <-saw:
			case <-time.After(10 * time.Second):
				t.Error("the worker has not seen it")
			}
			if name == "pause" {
				f, err := os.OpenFile(gate, os.O_WRONLY, 0)
				must(t, err)
				must(t, f.Close())
			}
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			must(t, os.Remove(gate))
			f, err := s.Fold()
			must(t, err)
			if f.Left() == 0 {
				t.Fatal("the worker went on")
			}
			must(t, Run(t.Context(), config(t, s)))
			f, err = s.Fold()
			must(t, err)
			if f.Count(journal.OK) != 2 || s.Ending(2) {
				t.Errorf("%d ok", f.Count(journal.OK))
			}
			oneResult(t, s)
		})
	}
}

// ownCPU is the CPU time of this process, without that of tasks.
func ownCPU(b *testing.B) time.Duration {
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBare is what a fork and an exec alone take.
func BenchmarkBare(b *testing.B) {
	q, err := run.NewQuick()
	must(b, err)
	defer q.Close()
	before, n := ownCPU(b), 0
	for b.Loop() {
		_, err := q.Run(b.Context(), run.QuickCmd{Path: "/bin/true", Argv: []string{"/bin/true"}})
		must(b, err)
		n++
	}
	b.ReportMetric(float64((ownCPU(b)-before).Microseconds())/float64(n), "own-µs/op")
}

// BenchmarkWorker is what a task takes with all that is recorded of it; compare with
// BenchmarkBare.
func BenchmarkWorker(b *testing.B) {
	n := b.N
	s := made(b, n, 1, "/bin/true")
	c := config(b, s)
	c.Slots = 1
	before := ownCPU(b)
	b.ResetTimer()
	must(b, Run(b.Context(), c))
	b.StopTimer()
	b.ReportMetric(float64((ownCPU(b)-before).Microseconds())/float64(n), "own-µs/op")
	f, err := s.Fold()
	must(b, err)
	if f.Count(journal.OK) != n {
		b.Fatalf("%d of %d", f.Count(journal.OK), n)
	}
}

// The pilot runs before the others, spread over the table, and once. One of which nothing
// succeeds pauses the sweep, once.
func TestPilot(t *testing.T) {
	s := made(t, 31, 2, `echo {n} >>ran; test -e good`)
	s.Spec.Pilot = 4
	var all sync.WaitGroup
	both := func() {
		t.Helper()
		for range 2 {
			all.Go(func() {
				if err := Run(t.Context(), config(t, s)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	both()
	f, err := s.Fold()
	must(t, err)
	if p := s.Paused(); p == nil || !p.Trouble || p.Why != "no task of the pilot succeeded, of 4" || f.Done() != 4 || f.State(11) != journal.Failed {
		t.Fatalf("%+v, %d done", p, f.Done())
	}
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "good"), nil, 0o600))
	must(t, s.Resume())
	both()
	f, err = s.Fold()
	must(t, err)
	ran, err := os.ReadFile(filepath.Join(s.Spec.Workdir, "ran"))
	must(t, err)
	if f.Done() != 31 || f.Count(journal.OK) != 27 || strings.Count(string(ran), "\n") != 31 {
		t.Errorf("%d done, %d ok, %q", f.Done(), f.Count(journal.OK), ran)
	}
}

// What the pilot's tasks had is counted for those that say no memory.
func TestUsual(t *testing.T) {
	r := newRoom(&sweep.Spec{Worker: &jobs.Place{Resources: jobs.Resources{Memory: 10 * jobs.GiB}}}, nil)
	r.usual(command.Request{}, 4*jobs.GiB)
	for range 2 {
		if has := r.take(command.Share{}); has.memory != 4*jobs.GiB || has.share.Memory != 0 {
			t.Errorf("%+v", has)
		}
	}
	done := make(chan bool)
	go func() { r.take(command.Share{}); close(done) }()
	select {
	case <-done:
		t.Error("a third one fits")
	case <-time.After(20 * time.Millisecond):
	}
	r.give(taken{memory: 4 * jobs.GiB})
	<-done
}

// A canary under which three workers end is set aside, and pauses the sweep.
func TestCanaryKills(t *testing.T) {
	s := made(t, 3, 1, `true`)
	s.Spec.Canary = true
	for deaths := range uint8(3) {
		n, dir, err := s.NewWorker()
		must(t, err)
		h, _, err := claims.New(s.FirstClaims(), n, func(uint32) bool { return true }).Next(0)
		must(t, err)
		w, err := journal.Create(dir)
		must(t, err)
		must(t, w.Add(journal.Record{Kind: journal.Start, Round: 1, Task: h.Lo, Deaths: deaths, Worker: n}))
		must(t, w.Close())
		must(t, os.WriteFile(filepath.Join(dir, claims.EndFile), nil, 0o600))
	}
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if p := s.Paused(); p == nil || f.State(1) != journal.SetAside || f.Done() != 1 {
		t.Errorf("%+v %v, %d done", p, f.State(1), f.Done())
	}
}

// A batch whose first task is long does not keep the others from a worker that is idle:
// they are given away, each is run once, and the long one counts.
func TestStraggler(t *testing.T) {
	s := made(t, 40, 1, `echo {n} >>ran; [ {n} != 1 ] || until test -e on; do sleep 0.01; done`)
	s.Spec.Batch, s.Spec.Slots = 20, 1
	c := config(t, s)
	c.Beat = 50 * time.Millisecond
	var all sync.WaitGroup
	all.Go(func() {
		if err := Run(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
	for f := must1(s.Fold())(t); f.State(1) != journal.Running; f = must1(s.Fold())(t) {
		time.Sleep(time.Millisecond)
	}
	must(t, Run(withOn(t, s, 39), c)) // it ends when all but the first are done
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "on"), nil, 0o600))
	all.Wait()
	f, err := s.Fold()
	must(t, err)
	ran, err := os.ReadFile(filepath.Join(s.Spec.Workdir, "ran"))
	must(t, err)
	if f.Count(journal.OK) != 40 || strings.Count(string(ran), "\n") != 40 {
		t.Errorf("%d ok, %d ran", f.Count(journal.OK), strings.Count(string(ran), "\n"))
	}
	if idle, err := s.Idle(); err != nil || len(idle) > 0 {
		t.Errorf("%v are idle, %v", idle, err)
	}
	left, _, err := claims.New(s.Claims(1), 9, func(uint32) bool { return true }).Next(0)
	if left != nil || err != nil {
		t.Errorf("%+v is not closed, %v", left, err)
	}
}

// withOn ends when so many tasks are done.
func withOn(t *testing.T, s *sweep.Sweep, done int) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if f, err := s.Fold(); err == nil && f.Done() >= done {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return ctx
}

// A batch of which nothing has begun, as another one's task is long, is given back.
func TestGivenBack(t *testing.T) {
	s := made(t, 60, 1, `echo {n} >>ran; [ {n} != 30 ] || until test -e on; do sleep 0.01; done`)
	s.Spec.Batch, s.Spec.Slots = 10, 1
	c := config(t, s)
	c.Beat = 50 * time.Millisecond
	var all sync.WaitGroup
	all.Go(func() {
		if err := Run(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
	for f := must1(s.Fold())(t); f.State(30) != journal.Running; f = must1(s.Fold())(t) {
		time.Sleep(time.Millisecond)
	}
	must(t, Run(withOn(t, s, 59), c))
	must(t, os.WriteFile(filepath.Join(s.Spec.Workdir, "on"), nil, 0o600))
	all.Wait()
	f, err := s.Fold()
	must(t, err)
	ran, err := os.ReadFile(filepath.Join(s.Spec.Workdir, "ran"))
	must(t, err)
	if f.Count(journal.OK) != 60 || strings.Count(string(ran), "\n") != 60 {
		t.Errorf("%d ok, %d ran", f.Count(journal.OK), strings.Count(string(ran), "\n"))
	}
}

// Tasks that ask for a GPU each have one that no other has at the time, by the names that the
// worker's own variable has; and CPUs of their own.
func TestGPUs(t *testing.T) {
	s := made(t, 12, 1, `mkdir gpu.$CUDA_VISIBLE_DEVICES || exit 1; sleep 0.02; rmdir gpu.$CUDA_VISIBLE_DEVICES; echo $CUDA_VISIBLE_DEVICES $(nproc)`)
	s.Spec.Slots = 4
	s.Spec.Request = command.Request{GPUs: "1", CPUs: "1"}
	s.Spec.Worker = &jobs.Place{Level: jobs.LevelNone, Env: []string{"CUDA_VISIBLE_DEVICES=3,GPU-5"}, Resources: jobs.Resources{CPUs: 2}}
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if f.Count(journal.OK) != 12 {
		t.Errorf("%d of 12", f.Count(journal.OK))
	}
	var own unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &own))
	seen := map[string]int{}
	for n := range uint32(12) {
		text, _ := output(t, s, f, n+1)
		seen[text]++
	}
	if own.Count() == 2 && (len(seen) > 2 || seen["1:3 1\n"] == 0) {
		t.Errorf("%v", seen)
	}
	r := newRoom(&sweep.Spec{Worker: &jobs.Place{Resources: jobs.Resources{GPUs: "a100:4"}}}, []string{"ROCR_VISIBLE_DEVICES=4,6,7,8", "HIP_VISIBLE_DEVICES=0,1,2,3"})
	r.take(command.Share{GPUs: 1})
	got := r.visible(r.take(command.Share{GPUs: 2}))
	slices.Sort(got)
	if fmt.Sprint(got) != "[HIP_VISIBLE_DEVICES=0,1 ROCR_VISIBLE_DEVICES=6,7]" {
		t.Error(got)
	}
}

// A task that takes more memory than it has said is ended, by what all its processes have.
func TestOverMemory(t *testing.T) {
	s := made(t, 2, 1, `[ {n} = 1 ] || exec sleep 1; (head -c 150000000 /dev/zero; sleep 600) | tail | cat`)
	s.Spec.Request = command.Request{Memory: "100MiB"}
	s.Spec.Worker = &jobs.Place{Level: jobs.LevelNone, Resources: jobs.Resources{CPUs: 2, Memory: jobs.GiB}}
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	if f.State(1) != journal.OverMemory || f.State(2) != journal.OK {
		t.Errorf("%v, %v", f.State(1), f.State(2))
	}
	if _, r, err := f.Record(1, s.WorkerDir); err != nil || r.Memory < 100<<20 || r.Signal != 9 {
		t.Errorf("%+v %v", r, err)
	}
}

// A task that fails is tried again by its worker, as often as its class may be; its last
// try is its result, and the output of that.
func TestTriedAgain(t *testing.T) {
	s := made(t, 4, 1, `echo >>n{n}; tries=$(wc -l <n{n}); echo try $tries
[ {n} != 1 ] || [ $tries = 3 ] || exit 75
[ {n} != 2 ] || exit 75
[ {n} != 3 ] || exit 3
[ {n} != 4 ] || [ $tries = 2 ] || exec sleep 600`)
	s.Spec.Retry = &jobs.Retry{Attempts: 6, Task: 2, Codes: []int{75}, Time: 1}
	s.Spec.Limit = 500 * time.Millisecond
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	for n, want := range map[uint32]struct {
		state journal.State
		tries journal.Tries
		text  string
	}{
		1: {journal.OK, journal.Tries{Task: 2}, "1:try 3\n"},
		2: {journal.Failed, journal.Tries{Task: 2}, "1:try 3\n"},
		3: {journal.Failed, journal.Tries{}, "1:try 1\n"},
		4: {journal.OK, journal.Tries{Time: 1}, "1:try 2\n"},
	} {
		_, r, err := f.Record(n, s.WorkerDir)
		must(t, err)
		if text, _ := output(t, s, f, n); f.State(n) != want.state || r.Tries != want.tries || text != want.text {
			t.Errorf("task %d: %v, %+v, %q", n, f.State(n), r.Tries, text)
		}
	}
	if f.Tried() != 5 {
		t.Errorf("tried again %d times", f.Tried())
	}
}

// Who takes a batch over goes on with the tries that its former holder has counted.
func TestTriesAreTakenOver(t *testing.T) {
	s := made(t, 2, 1, `echo >>n{n}; exit 75`)
	s.Spec.Batch = 2
	s.Spec.Retry = &jobs.Retry{Attempts: 6, Task: 2, Node: 2}
	died(t, s, 0, nil, nil)
	w := s.WorkerDir(1)
	must(t, os.Remove(filepath.Join(w, journal.ResultsFile)))
	j, err := journal.Create(w)
	must(t, err)
	one := journal.Tries{Task: 1}
	for _, r := range []journal.Record{
		{Kind: journal.Start, Task: 1}, {Kind: journal.Tried, State: journal.Failed, Code: 75, Tries: one, Task: 1},
		{Kind: journal.Start, Task: 2}, {Kind: journal.Tried, State: journal.Failed, Code: 75, Tries: one, Task: 2}, {Kind: journal.Start, Tries: one, Task: 2},
	} {
		r.Round, r.Generation, r.Worker = 1, 1, 1
		must(t, j.Add(r))
	}
	must(t, j.Close())
	must(t, Run(t.Context(), config(t, s)))
	f, err := s.Fold()
	must(t, err)
	for n, deaths := range map[uint32]uint8{1: 0, 2: 1} {
		_, r, err := f.Record(n, s.WorkerDir)
		must(t, err)
		ran, err := os.ReadFile(filepath.Join(s.Spec.Workdir, fmt.Sprint("n", n)))
		must(t, err)
		if len(ran) != 2 || r.Tries.Task != 2 || r.Deaths != deaths || r.State != journal.Failed {
			t.Errorf("task %d ran %d times here: %+v", n, len(ran), r)
		}
	}
}
