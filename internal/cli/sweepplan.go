package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/sweep"
	sweepcommand "berth/internal/sweep/command"
	"berth/internal/sweep/define"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// planSweep counts the tasks and says what they would take.
func (a *app) planSweep(ctx context.Context, e *engine.Engine, d *define.Sweep, spec sweep.Spec, each string) error {
	tasks, size, cores := 0, int64(0), 0.0
	var first define.Task
	if err := d.Tasks(nil, func(t define.Task) error {
		if tasks++; tasks == 1 {
			first = t
		}
		size += 60
		cores += coresOf(&spec, t)
		for _, p := range t.Params {
			size += int64(len(p.Name) + len(p.Text) + 6)
		}
		return nil
	}); err != nil {
		return err
	}
	argv, err := d.Command.Command(first)
	if err != nil {
		return err
	}
	m, by, err := knownTimes(d, each)
	if err != nil {
		return err
	}
	p, err := planJobs(ctx, e, spec, tasks, cores)
	if err != nil {
		return err
	}
	batch := sweep.BatchOf(tasks, spec.Workers)
	batches := (tasks + batch - 1) / batch
	spec.Tasks, spec.Batch = tasks, batch
	files := spec.MostFiles(len(p.sizes), p.workers)
	size += int64(tasks) * (2*journal.Size + 8)
	took := p.takes(m, tasks)
	models := modelsMost(&spec, tasks, p.workers)
	if a.json {
		return a.printJSON(map[string]any{"each_ns": m.Mean, "each_by": by, "takes_ns": took,
			"expected_core_hours": m.Mean.Hours() * cores, "name": spec.Name,
			"tasks": tasks, "at_once": p.atOnce, "batch": batch,
			"jobs": len(p.sizes), "workers": p.workers, "calls": p.calls, "core_hours": p.coreHours, "tries": p.tries,
			"files": files, "bytes": size, "first": argv, "models": models})
	}
	rows := [][2]string{
		{"name", spec.Name}, {"tasks", fmt.Sprint(tasks)}, {"the first", commandText(jobs.Command{Argv: argv})}, {"at once", fmt.Sprint(p.atOnce)},
		{"jobs", p.text}, {"batches", fmt.Sprintf("%d of %s", batches, jobs.Plural(batch, "task"))},
		{"files", fmt.Sprintf("%d at most, and one for each 256MiB of output", files)},
		{"disk", fmt.Sprintf("%d MiB, and what tasks write", jobs.Bytes(size).MiB())},
	}
	if p.calls > 0 {
		rows = append(rows, [2]string{"calls", fmt.Sprintf("%d of the scheduler's programs", p.calls)})
	}
	if p.coreHours > 0 {
		rows = append(rows, [2]string{"core-hours", p.most()})
	}
	if models != nil {
		rows = append(rows, [2]string{"models", models.String()})
	}
	switch {
	case m.Mean > 0:
		rows = append(rows, [2]string{"each", m.Mean.Round(time.Millisecond).String() + ", " + by},
			[2]string{"takes", fmt.Sprintf("%s, %.1f core-hours", roundly(took), m.Mean.Hours()*cores)},
			[2]string{"finish", a.when(a.now().Add(took)) + ", if all of it begins now"})
	case spec.Pilot > 0:
		rows = append(rows, [2]string{"pilot", jobs.Plural(min(spec.Pilot, tasks), "task") + " first: their times plan the others"})
	default:
		rows = append(rows, [2]string{"each", "not known: --each TIME says it, --pilot N measures it"})
	}
	return a.rows(rows)
}

// mostOfModels is what a sweep may ask models for at most.
type mostOfModels struct {
	// Of says what the caps count for: a try of a task, or a worker. Where a worker decides that, All is
	// the most that it may be.
	Of    string    `json:"of"`
	Count int       `json:"count"`
	Each  jobs.Caps `json:"each"`
	All   jobs.Caps `json:"all"` // of so many
}

func (m *mostOfModels) String() string {
	text := func(c jobs.Caps) string {
		var parts []string
		if c.Requests > 0 {
			parts = append(parts, jobs.Plural(c.Requests, "request"))
		}
		if c.Tokens > 0 {
			parts = append(parts, jobs.Plural(c.Tokens, "token"))
		}
		if c.USD > 0 {
			parts = append(parts, c.USD.String()+" USD")
		}
		return strings.Join(parts, ", ")
	}
	if !m.Each.Any() {
		return "no cap: --max-usd sets one for each " + m.Of
	}
	return fmt.Sprintf("%s at most for each %s; %s for all %d", text(m.Each), m.Of, text(m.All), m.Count)
}

// modelsMost is what all may ask models for, by what the caps count for in workers (docs/sweeps.md,
// "Keys and passed values"); nil is a sweep without a credential.
func modelsMost(spec *sweep.Spec, tasks, workers int) *mostOfModels {
	p := spec.Worker
	if p == nil || len(p.Credentials) == 0 {
		return nil
	}
	m := &mostOfModels{Of: "worker", Count: max(workers, 1), Each: jobs.Caps{Requests: p.Caps.Requests, Tokens: p.Caps.Tokens, USD: p.Caps.USD}}
	switch apart := spec.Own != "" && spec.Own != sweepcommand.OwnNothing; {
	case spec.Own == sweepcommand.OwnContainer || apart && !p.Network.Open():
		m.Of, m.Count = "try of a task", tasks
	case spec.Own == sweepcommand.OwnAuto: // a container each, where its worker can make no room
		m.Of, m.Count = "worker, or try of a task where no room can be made", max(m.Count, tasks)
	}
	m.All = jobs.Caps{Requests: m.Each.Requests * m.Count, Tokens: m.Each.Tokens * m.Count, USD: m.Each.USD * jobs.USD(m.Count)}
	return m
}

// mostMeasured is how many tasks of an earlier sweep are looked at for their times.
const mostMeasured = 200

// knownTimes is how long a task takes, as it was said or by the newest sweep of the same
// command that has results, and by what. Zero is not known.
func knownTimes(d *define.Sweep, each string) (m sweep.Measured, by string, err error) {
	if each != "" {
		if m.Mean, err = jobs.ParseDuration(each); err != nil || m.Mean <= 0 {
			return m, "", usage("--each is the time of a task, such as 90s: %q is none", each)
		}
		m.Most = m.Mean
		return m, "as --each says", nil
	}
	root, err := sweepRoot()
	if err != nil {
		return m, "", err
	}
	all, err := sweep.List(root)
	if err != nil {
		return m, "", err
	}
	words, script := d.Command.Words()
	for _, s := range all {
		if s.Spec.Script != script || !slices.Equal(s.Spec.Words, words) {
			continue
		}
		f, err := s.Fold()
		if err != nil {
			continue // of another sweep, which is not needed here
		}
		if m, err = s.Measure(f, sweep.Spread(s.Total(), mostMeasured)); err == nil && m.OK > 0 {
			return m, fmt.Sprintf("by %s of sweep %s (%s)", jobs.Plural(m.OK, "task"), s.Spec.Name, jobs.Short(s.Spec.ID)), nil
		}
	}
	return sweep.Measured{}, "", nil
}

// takes is how long so many tasks take when all workers run; 0 is not known.
func (p jobPlan) takes(m sweep.Measured, tasks int) time.Duration {
	n := max(p.atOnce, 1)
	return time.Duration((tasks+n-1)/n) * m.Mean
}

// coresOf is how many of a worker's cores a task takes: what it asks for, or its part of them.
func coresOf(spec *sweep.Spec, t define.Task) float64 {
	if n := spec.ShareOf(t, journal.Tries{}).CPUs; n > 0 {
		return float64(n)
	}
	if spec.Sandboxes() {
		return float64(spec.Worker.Resources.Cores())
	}
	return float64(max(spec.Worker.Resources.CPUs, 1)) / float64(max(spec.Slots, 1))
}

// roundly is a time for people, in steps that are small beside it.
func roundly(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// watchPilot waits until the pilot of a sweep has ended, if it has one, and submits the
// workers of the others by its times.
func (a *app) watchPilot(ctx context.Context, e *engine.Engine, s *sweep.Sweep) error {
	if s.Spec.Pilot == 0 {
		return nil
	}
	ctx = jobs.WithPatience(ctx)
	a.say("pilot of sweep %s: %s first", s.Spec.Name, jobs.Plural(s.First().Len(), "task"))
	for unseen := (absence{}); ; {
		f, err := s.Fold()
		if err != nil {
			return err
		}
		if !s.Piloting(f) {
			m, err := s.Measure(f, s.First())
			if err != nil {
				return err
			}
			if m.OK > 0 && !s.Cancelled() && s.Paused() == nil || f.Left() == 0 {
				return a.releaseSweep(ctx, e, s, f)
			} // or its worker is about to pause it
		}
		n, _, err := e.SweepWorkers(ctx, s.Dir)
		if unseen.gone(n, err, a.now()) || s.Cancelled() || s.Paused() != nil {
			return a.concludeSweep(s, f)
		}
		select {
		case <-ctx.Done():
			a.say("the pilot has not ended; then its worker goes on alone, and berth sweep resume %s submits the others", jobs.Short(s.Spec.ID))
			return a.leftSweep(s)
		case <-time.After(sweepPace):
		}
	}
}

// releaseSweep submits the workers for what is behind the pilot; those of the pilot go on.
func (a *app) releaseSweep(ctx context.Context, e *engine.Engine, s *sweep.Sweep, f *journal.Fold) error {
	if _, err := a.planByPilot(ctx, e, s, f); err != nil || !s.Spec.Worker.Clustered() || f.Left() == 0 {
		return err
	}
	return a.beginWorkers(ctx, e, s, workersFor(&s.Spec, s.First().Len()))
}

// planByPilot is the plan of a sweep whose pilot has ended: it is made, and said, once.
// Nil is that there is none.
func (a *app) planByPilot(ctx context.Context, e *engine.Engine, s *sweep.Sweep, f *journal.Fold) (*sweep.Plan, error) {
	p, err := s.Plan()
	if p != nil || err != nil || s.Spec.Pilot == 0 || s.Piloting(f) {
		return p, err
	}
	m, err := s.Measure(f, s.First())
	if err != nil || m.OK == 0 {
		return nil, err
	}
	most, err := e.SweepMost(ctx, *s.Spec.Worker)
	if err != nil {
		return nil, err
	}
	slots := m.SlotsOf(&s.Spec)
	made := m.Planned(f.Left(), s.Spec.Workers, slots, s.Spec.Fewer, most)
	if !s.Spec.Worker.Clustered() || s.Spec.Worker.Resources.Time > 0 {
		made.Time = 0
	}
	if err := s.SetPlan(made); err != nil {
		return nil, err
	}
	together := made.Workers
	if s.Spec.Together > 0 {
		together = min(together, s.Spec.Together)
	}
	n := together * slots
	took := time.Duration((f.Left()+n-1)/n) * m.Mean
	a.say("%s", pilotText(m))
	if f.Left() == 0 {
		return &made, nil
	}
	if s.Spec.Worker.Clustered() {
		walltime := ""
		if made.Time > 0 {
			walltime = ", walltime " + made.Time.String()
		}
		a.say("plan: %s of %s at once%s, some %s each", jobs.Plural(made.Workers, "worker"), jobs.Plural(slots, "task"), walltime,
			jobs.Plural((f.Left()+made.Workers-1)/made.Workers, "task"))
	}
	a.say("the other %s take about %s with %d at once, until %s", jobs.Plural(f.Left(), "task"), roundly(took), n, a.when(a.now().Add(took)))
	if made.Time > 0 && made.Time < m.Most*2 {
		a.say("warning: a task took %s, and the longest that a job may run is %s", roundly(m.Most), made.Time)
	}
	return &made, nil
}

// pilotText is what the tasks of a pilot took.
func pilotText(m sweep.Measured) string {
	return fmt.Sprintf("pilot: %d of %s ok, %s each, %s at most, %d MiB of memory at most", m.OK, jobs.Plural(m.Tasks, "task"),
		roundly(m.Mean), roundly(m.Most), m.Memory.MiB())
}
