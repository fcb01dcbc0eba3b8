package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/node/batch"
	"berth/jobs"
	"berth/jobs/store"
)

func TestMargin(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		-time.Hour: 5 * time.Second, 0: 5 * time.Second, 10 * time.Second: 5 * time.Second, 50 * time.Second: 5 * time.Second,
		2 * time.Minute: 12 * time.Second, 20 * time.Minute: 2 * time.Minute, 48 * time.Hour: 2 * time.Minute,
	} {
		if got := margin(left); got != want {
			t.Errorf("margin(%v) = %v, want %v", left, got, want)
		}
	}
}

func TestDeadline(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	started := began.Add(30 * time.Second)
	for _, c := range []struct {
		name  string
		limit time.Duration
		end   string
		want  time.Duration // after began; -1 is none
	}{
		{name: "none", want: -1},
		{name: "the task's own", limit: time.Minute, want: 90 * time.Second},
		{name: "Slurm's", end: "1800003600", want: time.Hour - 2*time.Minute},
		{name: "a short one of Slurm's", end: "1800000060", want: 54 * time.Second},
		{name: "the earlier one is the task's", limit: time.Minute, end: "1800003600", want: 90 * time.Second},
		{name: "the earlier one is Slurm's", limit: 48 * time.Hour, end: "1800003600", want: time.Hour - 2*time.Minute},
		{name: "passed", end: "1799999000", want: -1005 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &attempt{began: began, jobEnd: atSecond(t, c.end)}
			r.spec.Resources.Time = c.limit
			got := r.deadline(started)
			if c.want == -1 {
				if !got.IsZero() {
					t.Errorf("got %v", got)
				}
			} else if !got.Equal(began.Add(c.want)) {
				t.Errorf("got %v after the beginning, want %v", got.Sub(began), c.want)
			}
		})
	}
}

// atSecond reads seconds of Unix time; "" is no time.
func atSecond(t *testing.T, s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(n, 0)
}

func TestHurried(t *testing.T) {
	for _, c := range []struct {
		why  *why
		want time.Duration
	}{
		{nil, 10 * time.Second},
		{&why{}, 10 * time.Second},
		{&why{hurry: time.Minute}, 10 * time.Second},
		{&why{hurry: 8 * time.Second}, 5 * time.Second},
		{&why{hurry: 2 * time.Second}, time.Second},
	} {
		r := &attempt{}
		if c.why != nil {
			r.stop.set(*c.why)
		}
		if got := r.hurried(10 * time.Second); got != c.want {
			t.Errorf("%+v: %v, want %v", c.why, got, c.want)
		}
	}
}

func TestWhySignal(t *testing.T) {
	jobDir := t.TempDir()
	now := time.Now().Unix()
	for _, c := range []struct {
		name, scheduler, end string
		cancel               bool
		state                jobs.State
		reason, hint         string
	}{
		{name: "cancel", scheduler: "slurm", cancel: true, state: jobs.StateCancelled, reason: "cancelled"},
		{name: "cancel at the limit", scheduler: "slurm", cancel: true, end: fmt.Sprint(now - 5), state: jobs.StateCancelled, reason: "cancelled"},
		{name: "limit", scheduler: "slurm", end: fmt.Sprint(now), state: jobs.StateTimeout, reason: "the scheduler's time limit for the job passed", hint: "ask for more"},
		{name: "long before", scheduler: "slurm", end: fmt.Sprint(now + 600), state: jobs.StateCancelled, reason: "ended by the scheduler (signal terminated)", hint: "sacct -X -j 17"},
		{name: "no limit known", scheduler: "slurm", state: jobs.StateCancelled, reason: "ended by the scheduler", hint: "sacct -X -j 17"},
		{name: "local", scheduler: "local", state: jobs.StateCancelled, reason: "ended from outside (signal terminated)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &attempt{jobDir: filepath.Join(jobDir, c.name), claim: jobs.Claim{NativeID: "17"}, jobEnd: atSecond(t, c.end), batch: batch.Of(c.scheduler)}
			r.spec.Scheduler = c.scheduler
			if err := os.Mkdir(r.jobDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if c.cancel {
				if _, err := store.SetCancel(r.jobDir, jobs.Cancel{Version: 1}); err != nil {
					t.Fatal(err)
				}
			}
			w := r.whySignal(syscall.SIGTERM)
			if w.state != c.state || !strings.Contains(w.reason, c.reason) || !strings.Contains(w.hint, c.hint) || (c.hint == "" && w.hint != "") {
				t.Errorf("%+v", w)
			}
		})
	}
}
