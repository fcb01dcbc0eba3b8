package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/config/sitefile"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// Files of a submission of a sweep's workers.
const (
	sweepJob    = "job.json" // before the scheduler hears of it
	sweepScript = "script.sh"
	sweepHandle = "submitted.json"
	sweepKeys   = "keys" // variables of the program of a service, until the worker takes them
)

// sweepIntent is job.json.
type sweepIntent struct {
	Version   int    `json:"version"`
	Scheduler string `json:"scheduler"`
	Name      string `json:"name"` // by which it is looked for where the answer was lost
	Elements  int    `json:"elements,omitempty"`
}

// SweepJobs are the jobs in which the workers of a sweep run.
type SweepJobs struct {
	Dir, ID, Name string // of the sweep
	// Place is where, and with what, each of them runs, as it was planned.
	Place jobs.Place
	// Workers is how many there are to be, of which AtOnce run at a time; 0 is all.
	// In the queue of this machine there is one.
	Workers, AtOnce int
}

// SweepArrays settles in how many launches the workers are submitted, and how many
// each one has. Where the user may submit fewer, why says what bounds them.
func (e *Engine) SweepArrays(ctx context.Context, j SweepJobs) (sizes []int, why string, err error) {
	sc, err := e.scheduler(j.Place.Scheduler)
	if err != nil {
		return nil, "", err
	}
	cluster, ok := sc.(jobs.Cluster)
	if !ok {
		return []int{1}, "", nil
	}
	room, err := cluster.Room(ctx, j.Place.Slurm, identity().User)
	if err != nil {
		return nil, "", err
	}
	n := max(j.Workers, 1)
	if room.Why != "" && room.Jobs < n {
		if n, why = room.Jobs, room.Why; n == 0 {
			return nil, "", &jobs.Error{Kind: jobs.KindAgain, Msg: "no worker of the sweep can be submitted now: " + why,
				Hint: "wait until some of your jobs have ended"}
		}
	}
	most := room.Elements
	if most == 0 {
		most = n
	}
	for ; n > 0; n -= most {
		sizes = append(sizes, min(n, most))
	}
	return sizes, why, nil
}

// SweepMost is the longest that a worker may run, by the limits of its partition; 0 is
// not known.
func (e *Engine) SweepMost(ctx context.Context, p jobs.Place) (time.Duration, error) {
	sc, err := e.scheduler(p.Scheduler)
	if err != nil {
		return 0, err
	}
	cluster, ok := sc.(jobs.Cluster)
	if !ok {
		return 0, nil
	}
	most, err := cluster.Most(ctx, p.Slurm)
	return most.Time, err
}

// Partitions are the names of those of the schedulers here, as far as they are known.
func (e *Engine) Partitions() (names []string) {
	for _, sc := range e.Schedulers {
		if cluster, ok := sc.(jobs.Cluster); ok {
			names = append(names, cluster.Partitions()...)
		}
	}
	return names
}

// SubmitSweep submits the workers of a sweep and returns how many the scheduler has
// taken, and why these are fewer than were asked for. One that it takes none of is an
// error; so is an answer that never came, after the workers were looked for by name.
func (e *Engine) SubmitSweep(ctx context.Context, j SweepJobs) (taken int, why string, err error) {
	if err := holdSweep(&j.Place); err != nil {
		return 0, "", err
	}
	sizes, why, err := e.SweepArrays(ctx, j)
	if err != nil {
		return 0, "", err
	}
	var before []jobs.Handle
	for i := 0; i < len(sizes); i++ {
		l := jobs.Launch{Elements: sizes[i], AtOnce: j.AtOnce}
		if j.AtOnce > 0 {
			l.Behind = before // the bound is of all of them
		}
		h, err := e.submitWorkers(ctx, j, l)
		switch {
		case jobs.KindOf(err) == jobs.KindAgain && sizes[i] > 1 && why == "":
			// Limits that are not told, such as those of a QOS.
			why = err.Error()
			sizes = append(sizes[:i:i], sizes[i]/2)
			i--
		case jobs.KindOf(err) == jobs.KindAgain && taken > 0:
			return taken, err.Error(), nil
		case err != nil:
			return taken, why, err
		default:
			taken += sizes[i]
			before = []jobs.Handle{h}
		}
	}
	return taken, why, nil
}

// submitWorkers is one launch. What it is called tells it from the sweep's other ones.
func (e *Engine) submitWorkers(ctx context.Context, j SweepJobs, l jobs.Launch) (h jobs.Handle, err error) {
	sc, err := e.scheduler(j.Place.Scheduler)
	if err != nil {
		return h, err
	}
	node, err := e.Node()
	if err != nil {
		return h, err
	}
	at, n, err := nextJob(filepath.Join(j.Dir, "jobs"))
	if err != nil {
		return h, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the workers of the sweep", Err: err}
	}
	l.Attempt, l.Name, l.Dir = j.ID, fmt.Sprintf("berth-sweep-%s-%d", jobs.Short(j.ID), n), at
	l.Argv = []string{node, "sweep-worker", "--sweep", j.Dir}
	l.Comment = []string{"berth sweep " + jobs.Short(j.ID) + ": " + j.Name, "a worker, which runs its tasks one after the other"}
	l.Resources, l.Slurm, l.Profile, l.Identity = j.Place.Resources, j.Place.Slurm, j.Place.Profile, identity()
	l.Env = []string{"BERTH_HOME=" + e.Store.Home()}
	keys := filepath.Join(at, sweepKeys)
	service := e.program(j.Place.External, j.Place.Backend)
	if j.Place.External != nil {
		if service == nil {
			return h, &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + j.Place.Backend + " is no part of this program"}
		}
		l.Argv = append(l.Argv, "--keys", keys)
		l.Resources = jobs.Resources{CPUs: 1} // what it is said to have its sandboxes have
	}
	if !j.Place.Clustered() {
		l.Elements, l.AtOnce = 0, 0
	} else {
		l.Requeue = true // it is another worker then, and runs what is left
	}
	refused := true
	defer func() {
		if err != nil && refused {
			_ = disk.RemoveTree(at) // the scheduler has nothing
		}
	}()
	script, err := sc.Render(l)
	if err != nil {
		return h, err
	}
	intent, err := json.Marshal(sweepIntent{Version: 1, Scheduler: j.Place.Scheduler, Name: l.Name, Elements: l.Elements})
	if err == nil {
		err = disk.Create(filepath.Join(at, sweepScript), []byte(script), 0o600)
	}
	if err == nil && service != nil {
		dropSweepKeys(j.Dir) // of workers that never began
		err = disk.Create(keys, store.Values(service.Keys()), 0o600)
	}
	if err == nil {
		_, err = store.CreateOnce(filepath.Join(at, sweepJob), append(intent, '\n'))
	}
	if err != nil {
		return h, &jobs.Error{Kind: jobs.KindInfra, Msg: "write the script of a worker", Err: err}
	}
	h, err = sc.Submit(ctx, l, filepath.Join(at, sweepScript))
	if unclear(err) {
		h, err = e.resolveUnclear(ctx, sc, l.Name, err)
		h.Elements = l.Elements
	}
	if refused = !unclear(err); err != nil {
		if !refused {
			err = &jobs.Error{Kind: jobs.KindUnclear, Msg: "workers of sweep " + jobs.Short(j.ID) + " may or may not have been submitted", Err: err,
				Hint: "berth sweep status " + jobs.Short(j.ID) + " shows whether some run; " +
					"berth sweep cancel ends them, whether they run or wait"}
		}
		return h, err
	}
	refused = false
	data, err := json.MarshalIndent(h, "", "  ")
	if err == nil {
		_, err = store.CreateOnce(filepath.Join(at, sweepHandle), append(data, '\n'))
	}
	return h, err
}

// sweepHandles are the submissions of the sweep in dir, by their schedulers. One whose
// answer was lost is looked for by its name.
func (e *Engine) sweepHandles(ctx context.Context, dir string) (map[string][]jobs.Handle, error) {
	dirs, err := filepath.Glob(filepath.Join(dir, "jobs", "[0-9]*"))
	if err != nil {
		return nil, err
	}
	known := map[string][]jobs.Handle{}
	lost := map[string][]sweepIntent{}
	for _, d := range dirs {
		var h jobs.Handle
		var i sweepIntent
		noIntent := readJSON(filepath.Join(d, sweepJob), &i) // of older versions there is none
		if noIntent != nil && !errors.Is(noIntent, fs.ErrNotExist) {
			return nil, noIntent
		}
		switch err := readJSON(filepath.Join(d, sweepHandle), &h); {
		case err == nil:
			name := cmp.Or(i.Scheduler, h.Scheduler)
			known[name] = append(known[name], h)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case noIntent == nil:
			lost[i.Scheduler] = append(lost[i.Scheduler], i)
		}
	}
	for name, all := range lost {
		sc, err := e.scheduler(name)
		if err != nil {
			return nil, err
		}
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		found, err := sc.Find(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, i := range all {
			if h, ok := found[i.Name]; ok {
				h.Elements = i.Elements
				known[name] = append(known[name], h)
			}
		}
	}
	return known, nil
}

func readJSON(path string, v any) error {
	b, err := disk.ReadRegular(path, 1<<20)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " cannot be read", Err: err}
	}
	return nil
}

// SweepWorkers counts the workers of the sweep in dir that have not ended by the word of
// their scheduler, and the submissions of which none runs yet.
func (e *Engine) SweepWorkers(ctx context.Context, dir string) (left, waiting int, err error) {
	all, err := e.sweepHandles(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	for name, handles := range all {
		sc, err := e.scheduler(name)
		if err != nil {
			return 0, 0, err
		}
		known, err := sc.Status(ctx, handles)
		if err != nil {
			return 0, 0, err
		}
		for _, st := range known {
			if !st.State.Final() {
				left += max(st.Elements, 1)
			}
			if st.State == jobs.StatePending {
				waiting++
			}
		}
	}
	return left, waiting, nil
}

// dropSweepKeys removes keys of a service that no worker has taken.
func dropSweepKeys(dir string) {
	at := filepath.Join(dir, "jobs")
	entries, _ := os.ReadDir(at)
	for _, e := range entries {
		_ = os.Remove(filepath.Join(at, e.Name(), sweepKeys))
	}
}

// CancelSweep ends the jobs of the sweep in dir that a cluster has, waiting or running.
// Those of this machine end by the sweep's own record; keys that they have not taken are removed.
func (e *Engine) CancelSweep(ctx context.Context, dir string) error {
	dropSweepKeys(dir)
	all, err := e.sweepHandles(ctx, dir)
	for name, handles := range all {
		if !jobs.IsCluster(name) {
			continue
		}
		sc, serr := e.scheduler(name)
		if serr == nil {
			serr = sc.Cancel(ctx, handles)
		}
		err = errors.Join(err, serr)
	}
	return err
}

// holdSweep refuses workers of a sweep that the site does not allow.
func holdSweep(p *jobs.Place) error {
	site, err := sitefile.Read()
	if err != nil {
		return err
	}
	return site.Hold(p, false)
}

// nextJob makes the directory of the next submission.
func nextJob(parent string) (dir string, n int, err error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", 0, err
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return "", 0, err
	}
	for n = len(entries) + 1; ; n++ {
		dir = filepath.Join(parent, fmt.Sprintf("%04d", n))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, n, err
		}
	}
}
