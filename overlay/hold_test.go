package overlay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// elsewhere is a holder of an overlay on another machine, that beats until stop
// is called, and says that it does so every beat. stop returns its last beat,
// and the longest silence before it: a machine may let it stand still.
func elsewhere(t *testing.T, i *Info, beat time.Duration) (l *Lease, stop func() (last time.Time, silence time.Duration)) {
	t.Helper()
	o := Owner{Version: 1, Attempt: "00000000-0000-7000-8000-0000cccccccc", Job: "00000000-0000-7000-8000-0000dddddddd", SlurmJob: "77", Dir: t.TempDir(), Host: "c1", BootID: "b", PID: 1,
		Time: time.Now().UTC(), Beat: beat}
	l, err := Acquire(i.Dir, o, never)
	must(t, err)
	end, ended := make(chan struct{}), make(chan struct{})
	var silence time.Duration
	last := time.Now()
	go func() {
		defer close(ended)
		for n := 1; ; n++ {
			begun := time.Now()
			_ = store.Beat(o.Dir, n, begun)
			silence, last = max(silence, time.Since(last)), begun
			select {
			case <-end:
				return
			case <-time.After(min(o.Beat/2, 20*time.Millisecond)):
			}
		}
	}()
	return l, func() (time.Time, time.Duration) {
		close(end)
		<-ended
		return last, silence
	}
}

// A verb that may wait gets an overlay when it is given back, or when who has
// it on another machine is silent for long; it names whom it waits for.
func TestVerbWaits(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	var said []string
	told := make(chan struct{}, 9)
	s.Say = func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
		told <- struct{}{}
	}
	snapshot := func(label string) error {
		_, err := s.Snapshot(t.Context(), "deps", label, false)
		return err
	}

	l, stop := elsewhere(t, i, time.Second)
	s.Wait = 300 * time.Millisecond
	err := snapshot("in-vain")
	if jobs.CodeOf(err) != jobs.CodeAgain || !strings.Contains(err.Error(), "overlay deps is in use by job dddddddd, Slurm job 77 on c1 since 2") || jobs.HintOf(err) == "" {
		t.Errorf("in vain: %v", err)
	}
	s.Wait = -1
	<-told
	released := make(chan error, 1)
	go func() {
		<-told // it waits
		released <- l.Release()
	}()
	must(t, snapshot("given-back"))
	must(t, <-released)
	stop()
	if len(said) != 2 || !strings.HasPrefix(said[1], "waiting for overlay deps, held by job dddddddd, Slurm job 77 on c1 since 2") {
		t.Errorf("said %q", said)
	}

	const beat = 150 * time.Millisecond
	l, stop = elsewhere(t, i, beat)
	over := make(chan error, 1)
	go func() { over <- snapshot("taken-over") }()
	time.Sleep(2 * time.Second)
	last, silence := stop()
	must(t, <-over)
	if silence = max(silence, time.Since(last)); silence < 17*beat || l.Stands() {
		t.Errorf("taken over after a silence of %v; stands: %t", silence, l.Stands())
	}

	// Without waiting no one is judged by silence.
	s.Wait = 0
	l, stop = elsewhere(t, i, beat)
	stop()
	if err := snapshot("at-once"); jobs.CodeOf(err) != jobs.CodeAgain || !l.Stands() {
		t.Errorf("%v", err)
	}
}

// Who has lost an overlay while it was stopped changes nothing more.
func TestVerbStopped(t *testing.T) {
	s := newSet(t)
	i := s.create(t, "deps", jobs.DriverFuse)
	s.change(t, i, "old")
	_, err := s.Snapshot(t.Context(), "deps", "x", false)
	must(t, err)
	s.change(t, i, "new")
	held, release, err := s.held(t.Context(), "deps", "restore", false)
	must(t, err)
	must(t, held.stands())
	_, err = Acquire(i.Dir, me("aaaaaaaa"), always)
	must(t, err)
	if err := held.stands(); jobs.CodeOf(err) != jobs.CodeAgain {
		t.Errorf("%v", err)
	}
	release()
	if o, err := s.Get("deps"); err != nil || o.Holder == nil || !strings.HasSuffix(o.Holder.Attempt, "aaaaaaaa") {
		t.Errorf("%+v, %v", o, err)
	}
}
