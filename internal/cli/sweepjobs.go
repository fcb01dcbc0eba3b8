package cli

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"berth/engine"
	"berth/internal/config/task"
	"berth/internal/sweep"
	sweepcommand "berth/internal/sweep/command"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// sweepKeys are the keys of a task file that a sweep's workers have as flags.
var sweepKeys = append([]string{"backend", "image", "template", "overlay", "overlay-wait", "bind", "env", "stage",
	"network", "allow", "deny", "credential", "retry", "gpus", "max-requests", "max-tokens", "max-usd"}, placeKeys...)

// capsOfSweep says what these caps are of.
const capsOfSweep = ", of each task; of all tasks of a worker together with --own nothing, and in rooms with an open network"

// sweepHelps are the helps of flags that mean something else for a sweep than for a job.
var sweepHelps = map[string]string{
	"overlay":      "have each task begin with the files of the overlay `NAME`, as it is now; what tasks change is not kept in it",
	"overlay-wait": "wait while the overlay is in use, at most `TIME`, such as 30m (default: its last snapshot, or 75)",
	"max-requests": "refuse requests to models after this `NUMBER` of them" + capsOfSweep,
	"max-tokens":   "refuse requests to models after this `NUMBER` of tokens, in and out" + capsOfSweep,
	"max-usd":      "refuse requests to models after this `AMOUNT` of US dollars" + capsOfSweep,
}

// Where these are not said: how many workers a cluster gets, and how many sandboxes of a service
// there are at once.
const (
	usualWorkers   = 16
	usualSandboxes = 8
)

// sweepTask is what the command line and the configuration say of where the workers run. Where another machine has
// asked, what is said there counts more than the configuration here. The command is none of the tasks': only the
// place of it counts.
func (a *app) sweepTask(cmd *cobra.Command, o *sweepOptions, name string) (t jobs.Task, err error) {
	cfg, err := a.config(cmd)
	if err != nil {
		return t, err
	}
	t = jobs.Task{Name: name, Command: jobs.Words([]string{"true"})}
	asked := a.given != nil && a.given.Place != nil
	if asked {
		t.Place, t.Reference = a.given.Place.Place, a.given.Place.Reference
	}
	if err := task.Override(&t, keysGiven(cmd, keyFlags(), sweepKeys)); err != nil {
		return t, err
	}
	profile := t.Profile
	if _, err := configure(&t, cfg); err != nil {
		return t, err
	}
	if profile.Name != "" {
		t.Profile = profile
	}
	if asked && t.Login != nil {
		return t, &jobs.Error{Kind: jobs.KindConfig, Msg: "the configuration of this login host names another one, " + t.Login.Host,
			Hint: "name that one with --login, or take the target out of the configuration there"}
	}
	return t, o.where.loginHost(cmd, &t)
}

// placeSweep settles where the workers run, as for a job, and how many tasks at once.
func (a *app) placeSweep(cmd *cobra.Command, e *engine.Engine, o *sweepOptions, t jobs.Task, spec *sweep.Spec) error {
	cfg, err := a.config(cmd)
	if err != nil {
		return err
	}
	if said := cmd.Flags().Lookup("retry"); t.Retry != nil && said.Changed {
		if said.Value.String() != "on" || spec.Retry == nil || spec.Retry.Attempts == 0 { // else how often stands in the file
			spec.Retry = t.Retry
		}
	}
	if spec.Retry == nil {
		spec.Retry = jobs.DefaultRetry()
	}
	planned, err := e.Plan(cmd.Context(), t, engine.Choice{Offline: cfg.Offline(), Auto: cfg.Auto(),
		ImageLater: o.plan && t.Template != "" || a.given != nil && a.given.Place != nil && a.given.Place.ImageLater}, false)
	if err != nil {
		return err
	}
	p := &planned.Place
	refuse := func(what, hint string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: what + ": not available for sweeps in this version of berth", Hint: hint}
	}
	switch can := p.Can(); {
	case can.NeedsHost:
		return refuse("the backend "+p.Backend+", whose commands run on another machine",
			"run berth sweep there, or name another --backend; each task as a job: berth submit")
	case can.Service() && spec.Own == sweepcommand.OwnRoom:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "--own room: sandboxes of the backend " + p.Backend + " let none be made",
			Hint: "--own container, which is usual there, gives each task a sandbox"}
	case can.Service() && spec.Collect != "":
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "files that tasks leave in a sandbox of the backend " + p.Backend + " end with it, and collect names some",
			Hint: "leave collect out, and print results as JSON lines: berth help sweeps"}
	case len(p.Credentials) > 0 && p.Caps.OfCommand() != "":
		return refuse("a credential where "+p.Caps.OfCommand()+" is set, which holds one command", "each task as a job: berth submit")
	case p.Overlay.Keep != "":
		return refuse("[terminal] keep", "leave it out, or run each task as a job: berth submit")
	}
	if p.Resources.Nodes > 1 || p.Resources.Tasks > 1 {
		return usage("a worker of a sweep has one node: leave nodes and ntasks out, --workers submits more")
	}
	if p.Overlay.Name != "" {
		if err := a.overlayBelow(cmd.Context(), e, spec, planned, o.plan); err != nil {
			return err
		}
	}
	spec.Worker, spec.EnvNames = p, planned.EnvNames
	spec.Slots, spec.Workers = o.atOnce, 1
	if !p.Clustered() {
		if o.workers > 0 {
			return usage("--workers is of a cluster: on this machine one worker runs --at-once tasks")
		}
		if p.External != nil {
			if spec.Own == sweepcommand.OwnAuto {
				spec.Own = sweepcommand.OwnContainer
			}
			usual := usualSandboxes
			if !spec.Sandboxes() {
				usual = max(p.Resources.CPUs, 1) // in the one that they share
			}
			spec.Slots = cmp.Or(spec.Slots, usual)
			return nil
		}
		if spec.Slots == 0 {
			spec.Slots = max(p.Resources.CPUs, 0)
		}
		if spec.Slots == 0 {
			spec.Slots = runtime.NumCPU()
		}
		if p.Resources.CPUs == 0 {
			p.Resources.CPUs = runtime.NumCPU()
			if spec.Request.CPUs == "" {
				p.Resources.CPUs = min(p.Resources.CPUs, spec.Slots)
			}
		}
		return nil
	}
	p.Resources.CPUs = max(p.Resources.CPUs, 1)
	if spec.Workers = o.workers; spec.Workers == 0 {
		spec.Workers, spec.Fewer = usualWorkers, true
	}
	spec.Slots = p.Resources.CPUs
	for _, said := range []string{spec.Request.CPUs, spec.Request.Ranks} {
		if each, err := strconv.Atoi(said); err == nil && each > 0 {
			spec.Slots = max(spec.Slots/each, 1)
		}
	}
	if o.atOnce > 0 {
		spec.Slots = min(spec.Slots, o.atOnce)
		spec.Together = o.atOnce / spec.Slots
	}
	return nil
}

// workersFor is how many workers have something to do with so many tasks.
func workersFor(spec *sweep.Spec, tasks int) int {
	slots := max(spec.Slots, 1)
	return min(max(spec.Workers, 1), (tasks+slots-1)/slots)
}

// atOnce is how many tasks run at once, where all workers do.
func atOnce(spec *sweep.Spec, tasks int) int {
	n := workersFor(spec, tasks)
	if spec.Together > 0 {
		n = min(n, spec.Together)
	}
	return n * spec.Slots
}

// sweepJobs are the jobs of a sweep's workers, for so many tasks.
func sweepJobs(spec *sweep.Spec, dir string, tasks int) engine.SweepJobs {
	j := engine.SweepJobs{Dir: dir, ID: spec.ID, Name: spec.Name, Workers: workersFor(spec, tasks), AtOnce: spec.Together}
	if spec.Worker != nil {
		j.Place = *spec.Worker
		return j
	}
	// Of a version that had no others.
	j.Place = jobs.Place{Backend: jobs.BackendBare, Level: jobs.LevelNone, Scheduler: jobs.SchedulerLocal,
		Resources: jobs.Resources{CPUs: min(spec.Slots, runtime.NumCPU())}}
	return j
}

// beginWorkers submits the workers of a sweep that are missing where so many are there.
func (a *app) beginWorkers(ctx context.Context, e *engine.Engine, s *sweep.Sweep, there int) error {
	f, err := s.Fold()
	if err != nil {
		return err
	}
	tasks := f.Left()
	plan, err := a.planByPilot(ctx, e, s, f)
	if err != nil {
		return err
	}
	if plan == nil && s.Piloting(f) {
		tasks = min(tasks, s.First().Len())
	}
	j := sweepJobs(&s.Spec, s.Dir, tasks)
	if plan != nil && j.Place.Clustered() {
		if j.Workers = min(j.Workers, plan.Workers); plan.Time > 0 {
			j.Place.Resources.Time = plan.Time
		}
	}
	if j.Place.Clustered() {
		if j.Workers -= there; j.Workers <= 0 {
			return nil
		}
	}
	taken, why, err := e.SubmitSweep(ctx, j)
	if err == nil && taken < j.Workers && j.Place.Clustered() {
		a.say("warning: %d of %s were submitted: %s", taken, jobs.Plural(j.Workers, "worker"), why)
		a.say("hint: berth sweep resume %s submits the others when there is room", jobs.Short(s.Spec.ID))
	}
	return err
}

// passValues keeps for the workers what tasks take from the environment that it has now. Where
// that cannot be read, what was kept before stays.
func (a *app) passValues(ctx context.Context, e *engine.Engine, s *sweep.Sweep) error {
	if !s.Spec.Passes() {
		return nil
	}
	values, err := a.valuesNow(ctx, e, s)
	if err == nil {
		return s.SetPassed(values)
	}
	if kept, kerr := s.Passed(); kerr == nil && kept != nil {
		return nil
	}
	return err
}

// valuesNow are those values. Where another machine has asked, variables are those that it has sent: what this one has
// by the same names is something else.
func (a *app) valuesNow(ctx context.Context, e *engine.Engine, s *sweep.Sweep) ([]string, error) {
	names, keys := s.Spec.EnvNames, s.Spec.Worker.Credentials
	if a.given == nil {
		return e.SweepValues(ctx, names, keys)
	}
	both := e.Getenv
	e.Getenv = a.given.value
	values, err := e.SweepValues(ctx, names, nil)
	e.Getenv = both
	if err != nil {
		return nil, err
	}
	more, err := e.SweepValues(ctx, nil, keys)
	return append(values, more...), err
}

// stillThere is how many workers of a sweep run, or wait in the queue, on a cluster or for
// the sandboxes of a service: these need not be submitted again. Those of a sweep that was cancelled or paused
// are about to end.
func (a *app) stillThere(ctx context.Context, e *engine.Engine, s *sweep.Sweep) (int, error) {
	p := s.Spec.Worker
	if p == nil || !p.Clustered() && p.External == nil || s.Cancelled() || s.Paused() != nil {
		return 0, nil
	}
	left, waiting, err := e.SweepWorkers(jobs.WithUrgency(ctx), s.Dir)
	if err != nil {
		return 0, err
	}
	if waiting > 0 {
		a.say("workers of sweep %s wait in the queue still: no more are submitted", s.Spec.Name)
		return s.Spec.Workers, nil
	}
	// A worker that has ended is in the queue for a moment still. One that has just begun and has no
	// record yet is not counted: one too many claims nothing.
	stay := 0
	for _, w := range aliveWorkers(s, a.now()) {
		if !s.Ending(w) { // as of a cancellation that was taken back
			stay++
		}
	}
	return min(left, stay), nil
}

// cancelWorkers ends the jobs of a sweep that a cluster has.
func (a *app) cancelWorkers(ctx context.Context, s *sweep.Sweep) error {
	if p := s.Spec.Worker; p == nil || !p.Clustered() && p.External == nil {
		return nil
	}
	e, err := a.engine()
	if err == nil {
		err = e.CancelSweep(ctx, s.Dir)
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindOf(err),
			Msg: "workers that wait of sweep " + s.Spec.Name + " may be in the queue still, where each ends as soon as it begins", Err: err,
			Hint: "berth sweep cancel " + jobs.Short(s.Spec.ID) + " again takes them out"}
	}
	return nil
}

// jobPlan is what a sweep's workers are.
type jobPlan struct {
	sizes     []int // of each launch
	workers   int
	atOnce    int
	calls     int // of the scheduler's programs, to submit
	coreHours float64
	once      float64 // that, if no task is tried again
	tries     int     // of a task, that are in it; 0 is that the time of all workers bounds it
	text      string
}

// planJobs plans the jobs of so many tasks, which take so many cores if all of them run at once.
func planJobs(ctx context.Context, e *engine.Engine, spec sweep.Spec, tasks int, cores float64) (p jobPlan, err error) {
	j := sweepJobs(&spec, "", tasks)
	sizes, why, err := e.SweepArrays(ctx, j)
	if err != nil {
		return p, err
	}
	p = jobPlan{sizes: sizes, atOnce: atOnce(&spec, tasks), text: "1, in the queue of this machine"}
	for _, n := range sizes {
		p.workers += n
	}
	if spec.Limit > 0 {
		var each float64
		each, p.tries = spec.MostTime()
		p.coreHours, p.once = each*cores, spec.Limit.Hours()*cores
	}
	each := j.Place.Resources.CPUs
	if spec.Sandboxes() {
		each = spec.Cores() // of as many as there are at once
	}
	if byJobs := j.Place.Resources.Time.Hours() * float64(p.workers*each); byJobs > 0 && (p.coreHours == 0 || byJobs < p.coreHours) {
		p.coreHours, p.tries = byJobs, 0
	}
	if !j.Place.Clustered() {
		return p, nil
	}
	p.atOnce = min(p.atOnce, p.workers*spec.Slots)
	var words []string
	for _, n := range sizes {
		words = append(words, strconv.Itoa(n))
	}
	p.text = fmt.Sprintf("%s, of %s: %s of %s", jobs.Plural(len(sizes), "array"), j.Place.Scheduler,
		strings.Join(words, ", "), jobs.Plural(j.Place.Resources.CPUs, "CPU"))
	if why != "" {
		p.text += "; no more, as " + why
	}
	// What it may start is asked in two calls at most, and the queue in one.
	p.calls = len(sizes) + 3
	return p, nil
}

// most says what bounds the core-hours of a plan.
func (p jobPlan) most() string {
	text := fmt.Sprintf("%.1f at most", p.coreHours)
	switch {
	case p.tries == 0:
		return text + ", by the walltime of its workers"
	case p.tries > 1:
		return fmt.Sprintf("%s, with %d tries of each task (%.1f without)", text, p.tries, p.once)
	}
	return text
}

// ownOf says what each task of a sweep has for itself, by its last worker where it depends on that.
func ownOf(s *sweep.Sweep) string {
	own, why := s.Spec.Own, ""
	if o := s.LastOwn(); o != nil {
		own, why = o.Own, o.Why
	}
	switch own {
	case sweepcommand.OwnRoom:
		return "a room of its own for each task"
	case sweepcommand.OwnContainer:
		if s.Spec.Sandboxes() {
			return "a sandbox of its own for each task"
		}
		if why != "" {
			return "a container of its own for each task (no room: " + jobs.Printable(why) + ")"
		}
		return "a container of its own for each task"
	case sweepcommand.OwnAuto:
		return "a room of its own for each task, or else a container"
	}
	return "one container for all tasks of a worker"
}

// placeRows are how the tasks of a sweep are contained, and why its last worker could run
// none of them.
func placeRows(s *sweep.Sweep) (rows [][2]string) {
	p := s.Spec.Worker
	if p == nil {
		return nil
	}
	if p.Level != jobs.LevelNone || p.External != nil {
		rows = append(rows, [2]string{"backend", p.Backend + " (containment: " + p.Containment() + "), " + ownOf(s)})
	}
	if o := s.Spec.Overlay; o != nil {
		rows = append(rows, [2]string{"overlay", o.String() + ", below the files of each task"})
	}
	if why := s.LastTrouble(); why != "" {
		rows = append(rows, [2]string{"last worker", jobs.Printable(why)})
	}
	return rows
}
