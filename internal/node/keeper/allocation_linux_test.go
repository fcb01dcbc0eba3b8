package keeper

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllocated(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no squeue
	for _, c := range []struct {
		env  map[string]string
		want allocation
	}{
		{map[string]string{"SLURM_JOB_ID": "17", "SLURM_JOB_END_TIME": "1700000000"}, allocation{id: "17", ends: time.Unix(1700000000, 0).UTC()}},
		{map[string]string{"SLURM_JOB_ID": "17"}, allocation{id: "17"}},
		{nil, allocation{}},
	} {
		if got := allocated(t.Context(), filepath.Join(t.TempDir(), "envs", "e"), func(name string) string { return c.env[name] }); got.id != c.want.id || !got.ends.Equal(c.want.ends) {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
}

// An end that was moved counts when the one that was known comes near.
func TestEndMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		k := &keeper{dir: t.TempDir(), life: newLife(0, 0), log: slog.New(slog.NewTextHandler(io.Discard, nil)), within: allocation{id: "17", ends: began.Add(time.Hour)}}
		later := []time.Time{began.Add(3 * time.Hour), {}}
		asked := 0
		k.untilEnds(t.Context(), func(_ context.Context, within time.Duration) time.Time {
			if within <= 0 || within > endMargin/2 {
				t.Errorf("may take %v", within)
			}
			asked++
			return later[asked-1]
		})
		if took := time.Since(began); asked != 2 || took != 3*time.Hour-endMargin {
			t.Errorf("asked %d times, ended after %v", asked, took)
		}
		if why := k.life.Why(); why == nil || why.text != "the time of its allocation (17) was up" {
			t.Errorf("%+v", why)
		}
		if i, err := Peek(k.dir); err != nil || i == nil || !i.Ends.Equal(began.Add(3*time.Hour)) {
			t.Errorf("recorded %+v, %v", i, err)
		}
	})
}
