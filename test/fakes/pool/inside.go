//go:build linux

package pool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Inside is the pool as a process in one of its jobs sees it. It reads the yard that
// the environment names.
type Inside struct{}

var _ jobs.NodeScheduler = Inside{}

func (Inside) yard() yard { return yard(os.Getenv("POOL_YARD")) }

// Name implements [jobs.NodeScheduler].
func (Inside) Name() string { return Name }

// Program implements [jobs.NodeScheduler].
func (Inside) Program(string) bool { return false }

// Job implements [jobs.NodeScheduler].
func (Inside) Job(getenv func(string) string) (jobs.NodeJob, bool) {
	at := func(name string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, getenv(name))
		return t
	}
	round, _ := strconv.Atoi(getenv("POOL_ROUND"))
	job := jobs.NodeJob{ID: getenv("POOL_TICKET"), Name: getenv("POOL_TITLE"), Node: getenv("POOL_HOST"), Rank: getenv("POOL_SEAT"), Restart: round,
		Began: at("POOL_BEGAN"), Ends: at("POOL_STOPS")}
	return job, job.ID != ""
}

// Remaining implements [jobs.NodeScheduler].
func (i Inside) Remaining(_ context.Context, _ jobs.Starter, id string) (time.Duration, bool) {
	t, err := i.yard().load(id)
	if err != nil || t.Stops.IsZero() {
		return 0, false
	}
	return time.Until(t.Stops), true
}

// KillWait implements [jobs.NodeScheduler].
func (i Inside) KillWait(context.Context, jobs.Starter) time.Duration {
	s, err := i.yard().site()
	if err != nil {
		return time.Second
	}
	return s.Grace
}

// Version implements [jobs.NodeScheduler].
func (Inside) Version(context.Context, jobs.Starter) string { return "1" }

// Cancel implements [jobs.NodeScheduler].
func (i Inside) Cancel(_ context.Context, _ jobs.Starter, ids []string) error {
	var errs []error
	for _, id := range ids {
		if err := i.yard().ask(id, askEnd, "a node"); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Passed implements [jobs.NodeScheduler].
func (Inside) Passed(name string) bool {
	return slices.Contains([]string{"POOL_TICKET", "POOL_TITLE", "POOL_HOST", "POOL_ROUND", "POOL_SEAT"}, name)
}

// JobVariable implements [jobs.NodeScheduler].
func (Inside) JobVariable(name string) bool { return strings.HasPrefix(name, "POOL_") }

// HasCgroup implements [jobs.NodeScheduler].
func (Inside) HasCgroup(path, id string) bool {
	return id != "" && slices.Contains(strings.Split(path, "/"), "ticket@"+id+".slice")
}

// EndHint implements [jobs.NodeScheduler].
func (Inside) EndHint(id string) string { return "the ticket says who: " + id }

// Ranks implements [jobs.NodeScheduler]. The programs of the pool are those of the
// binary that runs.
func (Inside) Ranks(r jobs.Resources, _ jobs.SlurmOptions, argv []string) []string {
	return append([]string{"/proc/self/exe", verbFan, strconv.Itoa(r.Tasks)}, argv...)
}

// Step implements [jobs.NodeScheduler]. The pool has no steps.
func (Inside) Step(string, jobs.Resources, jobs.SlurmOptions, []string) []string { return nil }

// EndStep implements [jobs.NodeScheduler].
func (Inside) EndStep(context.Context, jobs.Starter, string, string) error { return nil }

// RankEnviron implements [jobs.NodeScheduler].
func (Inside) RankEnviron(environ []string) []string { return environ }

// RankPassed implements [jobs.NodeScheduler].
func (Inside) RankPassed(jobs.SlurmOptions, []string) []string { return nil }

var seatFell = pattern.Lazy(`^pool-fan: seat ([0-9]+) fell: (.+)$`)

// RankEnded implements [jobs.NodeScheduler].
func (Inside) RankEnded(line string) (func(int) bool, string, bool) {
	m := seatFell().FindStringSubmatch(line)
	if m == nil {
		return nil, "", false
	}
	seat, err := strconv.Atoi(m[1])
	return func(rank int) bool { return err == nil && rank == seat }, m[2], true
}

// Stubs implements [jobs.NodeScheduler].
func (Inside) Stubs() jobs.Stubs { return nil }
