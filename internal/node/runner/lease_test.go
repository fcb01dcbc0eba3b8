package runner

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// waiter is an attempt that asks for the named overlay in dir.
func waiter(t *testing.T, wait time.Duration) (r *attempt, open func(ctx context.Context, dir string) (*overlay.Layer, error)) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "i.sif")
	if err := os.WriteFile(image, siftest.New(uuid.New(), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	p := lease.Self()
	r = &attempt{dir: t.TempDir(), on: run.Local{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), times: timesOf(50 * time.Millisecond),
		spec: jobs.Spec{ID: "00000000-0000-7000-8000-0000aaaaaaaa", Place: jobs.Place{Image: image}}, info: jobs.AttemptInfo{ID: "00000000-0000-7000-8000-0000bbbbbbbb"},
		claim: jobs.Claim{Host: p.Host, BootID: p.BootID, PID: p.PID, Start: p.Start, NativeID: "1234", Restart: 2}}
	return r, func(ctx context.Context, dir string) (*overlay.Layer, error) {
		return r.openNamed(ctx, dir, jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverFuse, Wait: wait})
	}
}

// beats writes the beat of an owner until stop is called.
func beats(t *testing.T, dir string, every time.Duration) (stop func()) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 1; ; n++ {
			_ = store.Beat(dir, n, time.Now())
			select {
			case <-end:
				return
			case <-time.After(every):
			}
		}
	}()
	return func() { close(end); <-ended }
}

// holder is the owner of dir on another machine.
func holder(t *testing.T, dir string, beat time.Duration) (overlay.Owner, *overlay.Lease) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o := overlay.Owner{Version: 1, Attempt: "00000000-0000-7000-8000-0000cccccccc", Job: "00000000-0000-7000-8000-0000dddddddd", SlurmJob: "77", Dir: t.TempDir(),
		Host: "c1", BootID: "another", PID: 9, Time: time.Now().UTC(), Beat: beat}
	l, err := overlay.Acquire(dir, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o, l
}

// An attempt that does not wait ends with the name of who has the overlay, and
// one that does gets it as soon as it is given back.
func TestOverlayWait(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deps")
	t.Parallel()
	o, held := holder(t, dir, time.Second)
	stop := beats(t, o.Dir, 20*time.Millisecond)
	defer stop()
	_, open := waiter(t, 0)
	_, err := open(t.Context(), dir)
	want := "overlay deps is in use by job dddddddd, Slurm job 77 on c1 since " + o.Time.Format(time.RFC3339)
	if jobs.CodeOf(err) != jobs.CodeAgain || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, open = waiter(t, 200*time.Millisecond)
	if _, err := open(t.Context(), dir); jobs.CodeOf(err) != jobs.CodeAgain || err.Error() != want {
		t.Errorf("in vain: %v", err)
	}
	r, open := waiter(t, time.Hour)
	go func() { // when it is known to wait
		for t.Context().Err() == nil {
			if b, err := os.ReadFile(filepath.Join(r.dir, store.FileEvents)); err == nil && strings.Contains(string(b), `"waiting"`) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_ = held.Release()
	}()
	l, err := open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	now, err := lease.Holder(dir)
	if err != nil || now.Attempt != r.info.ID || now.Job != r.spec.ID || now.SlurmJob != "1234" || now.Restart != 2 || now.Start == "" || now.Beat != r.times.Beat || now.Host == "" || now.BootID == "" || now.PID == 0 {
		t.Errorf("%+v, %v", now, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	events, err := os.ReadFile(filepath.Join(r.dir, store.FileEvents))
	if err != nil || !strings.Contains(string(events), `"waiting","text":"for overlay deps, held by job dddddddd, Slurm job 77 on c1 since `) || !strings.Contains(string(events), `"leased"`) {
		t.Errorf("%s, %v", events, err)
	}
	// Told to stop, it waits no more.
	_, l2 := holder(t, dir, time.Hour)
	defer func() { _ = l2.Release() }()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := open(ctx, dir); jobs.CodeOf(err) != jobs.CodeAgain {
		t.Error(err)
	}
}

// A holder elsewhere loses its overlay when its beat has been silent for
// eighteen of its own periods, and never while it is fresh.
func TestOverlayTakeOver(t *testing.T) {
	t.Parallel()
	const beat = 700 * time.Millisecond
	dir := filepath.Join(t.TempDir(), "deps")
	o, old := holder(t, dir, beat)
	stop := beats(t, o.Dir, beat/2)
	last := make(chan time.Time, 1)
	time.AfterFunc(2*time.Second, func() {
		last <- time.Now() // or a little later
		stop()
	})
	_, open := waiter(t, time.Hour)
	l, err := open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(<-last); took < 17*beat {
		t.Errorf("taken over after %v", took)
	}
	if old.Stands() {
		t.Error("the old one stands")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
