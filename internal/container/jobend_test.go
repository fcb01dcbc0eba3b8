package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
)

// Newer versions of Slurm put the end of the job into its environment; where it is
// not, squeue is asked.
func TestJobEnd(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		env, job string
		on       queue
		want     time.Time
	}{
		{env: "1800003600", job: "17", on: queue{err: errors.New("not asked")}, want: time.Unix(1_800_003_600, 0)},
		{job: "17", on: queue{text: "2026-11-21T12:00:00\n"}, want: noon},
		{env: "0", job: "17", on: queue{text: "2026-11-21T12:00:00\n"}, want: noon},
		{env: "Unknown", job: "17", on: queue{text: "NONE\n"}},
		{job: "17", on: queue{text: ""}},
		{job: "17", on: queue{text: "2026-11-21T12:00:00\n", code: 1}},
		{job: "17", on: queue{err: errors.New("no squeue")}},
		{on: queue{err: errors.New("not asked")}},
	} {
		getenv := func(name string) string { return map[string]string{"SLURM_JOB_END_TIME": c.env}[name] }
		if got := JobEnd(t.Context(), c.on, getenv, c.job); !got.Equal(c.want) {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
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
	if got := strings.Join(c.Argv, " "); got != "squeue -h -j 17 -o %e" {
		return nil, fmt.Errorf("unexpected command: %q", got)
	}
	_, err := c.Stdout.Write([]byte(q.text))
	return q, err
}

func (queue) Signal(syscall.Signal) error { return nil }

func (q queue) Wait() (jobs.Exit, error) { return jobs.Exit{Started: true, Code: q.code}, nil }
