package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/slurm/inside"
)

// Newer versions of Slurm put start and end of the job into its environment, by
// their controller's clock. Where that is not this node's, or they are not there,
// squeue is asked for what is left.
func TestEnd(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return fmt.Sprint(noon.Add(d).Unix()) }
	silent := queue{err: errors.New("not asked")}
	for name, c := range map[string]struct {
		start, end, job string
		on              queue
		want            time.Duration // from now on; -1 is not known
	}{
		"agree":                {start: at(-2 * time.Second), end: at(time.Hour), job: "17", on: silent, want: time.Hour},
		"ahead":                {start: at(-240 * time.Second), end: at(-60 * time.Second), job: "17", on: queue{text: "2:58\n"}, want: 178 * time.Second},
		"behind":               {start: at(240 * time.Second), end: at(420 * time.Second), job: "17", on: queue{text: "2:58\n"}, want: 178 * time.Second},
		"behind, not told":     {start: at(240 * time.Second), end: at(420 * time.Second), job: "17", on: silent, want: 180 * time.Second},
		"a long prolog":        {start: at(-10 * time.Minute), end: at(50 * time.Minute), job: "17", on: queue{text: "50:00\n"}, want: 50 * time.Minute},
		"long ago, not told":   {start: at(-10 * time.Minute), end: at(50 * time.Minute), job: "17", on: silent, want: 50 * time.Minute},
		"no start":             {end: at(time.Hour), job: "17", on: queue{text: "59:00\n"}, want: 59 * time.Minute},
		"old Slurm":            {job: "17", on: queue{text: "1-02:03:04\n"}, want: 26*time.Hour + 3*time.Minute + 4*time.Second},
		"zero":                 {start: "0", end: "0", job: "17", on: queue{text: "30\n"}, want: 30 * time.Second},
		"no limit":             {end: "Unknown", job: "17", on: queue{text: "UNLIMITED\n"}, want: -1},
		"passed":               {job: "17", on: queue{text: "INVALID\n"}, want: -1},
		"nothing said":         {job: "17", on: queue{text: ""}, want: -1},
		"failed":               {job: "17", on: queue{text: "2:58\n", code: 1}, want: -1},
		"no squeue":            {job: "17", on: queue{err: errors.New("no squeue")}, want: -1},
		"no job":               {on: silent, want: -1},
		"no job, and long ago": {start: at(-time.Hour), end: at(time.Hour), on: silent, want: time.Hour},
	} {
		in := inside.Slurm{}
		job, _ := in.Job(func(name string) string {
			return map[string]string{"SLURM_JOB_ID": c.job, "SLURM_JOB_END_TIME": c.end, "SLURM_JOB_START_TIME": c.start}[name]
		})
		got := end(t.Context(), c.on, in, job, func() time.Time { return noon })
		if c.want < 0 && !got.IsZero() || c.want >= 0 && !got.Equal(noon.Add(c.want)) {
			t.Errorf("%s: %v from now on, want %v", name, got.Sub(noon), c.want)
		}
	}
}

// queue is a squeue with an answer.
type queue struct {
	text string
	code int
	err  error
}

func (q queue) Start(_ context.Context, c jobs.Cmd) (jobs.Process, error) {
	if q.err != nil {
		return nil, q.err
	}
	if got := strings.Join(c.Argv, " "); got != "squeue -h -j 17 -o %L" {
		return nil, fmt.Errorf("unexpected command: %q", got)
	}
	_, err := c.Stdout.Write([]byte(q.text))
	return q, err
}

func (queue) Signal(syscall.Signal) error { return nil }

func (q queue) Wait() (jobs.Exit, error) { return jobs.Exit{Started: true, Code: q.code}, nil }
