package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/config/sitefile"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// sweepScript and sweepHandle are files of a worker's submission.
const (
	sweepScript = "script.sh"
	sweepHandle = "submitted.json"
)

// BeginSweepWorker submits a worker of the sweep in dir to this machine's queue, with
// so many CPUs. What it is called tells it from the sweep's other ones.
func (e *Engine) BeginSweepWorker(ctx context.Context, dir, id, name string, cpus int) (jobs.Handle, error) {
	site, err := sitefile.Read()
	if err == nil {
		err = site.Hold(&jobs.Place{Backend: jobs.BackendBare, Level: jobs.LevelNone, Resources: jobs.Resources{CPUs: cpus}}, false)
	}
	if err != nil {
		return jobs.Handle{}, err
	}
	sc, err := e.scheduler(jobs.SchedulerLocal)
	if err != nil {
		return jobs.Handle{}, err
	}
	node, err := e.Node()
	if err != nil {
		return jobs.Handle{}, err
	}
	at, n, err := nextJob(filepath.Join(dir, "jobs"))
	if err != nil {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "record a worker of the sweep", Err: err}
	}
	l := jobs.Launch{
		Attempt:   id,
		Name:      fmt.Sprintf("berth-sweep-%s-%d", jobs.Short(id), n),
		Dir:       at,
		Argv:      []string{node, "sweep-worker", "--sweep", dir},
		Comment:   []string{"berth sweep " + jobs.Short(id) + ": " + name, "a worker, which runs its tasks one after the other"},
		Resources: jobs.Resources{CPUs: cpus},
		Identity:  identity(),
		Env:       []string{"BERTH_HOME=" + e.Store.Home()},
	}
	script, err := sc.Render(l)
	if err != nil {
		return jobs.Handle{}, err
	}
	path := filepath.Join(at, sweepScript)
	if err := disk.Create(path, []byte(script), 0o600); err != nil {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "write the script of a worker", Err: err}
	}
	h, err := sc.Submit(ctx, l, path)
	if err != nil {
		return jobs.Handle{}, err
	}
	data, err := json.MarshalIndent(h, "", "  ")
	if err == nil {
		_, err = store.CreateOnce(filepath.Join(at, sweepHandle), append(data, '\n'))
	}
	return h, err
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

// SweepWorkers counts the workers of the sweep in dir that its scheduler has, waiting or
// running.
func (e *Engine) SweepWorkers(ctx context.Context, dir string) (int, error) {
	sc, err := e.scheduler(jobs.SchedulerLocal)
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "jobs", "*", sweepHandle))
	if err != nil {
		return 0, err
	}
	var all []jobs.Handle
	for _, f := range files {
		b, err := disk.ReadRegular(f, 1<<20)
		if err != nil {
			return 0, err
		}
		var h jobs.Handle
		if err := json.Unmarshal(b, &h); err != nil {
			return 0, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + f + " cannot be read", Err: err}
		}
		all = append(all, h)
	}
	if len(all) == 0 {
		return 0, nil
	}
	known, err := sc.Status(ctx, all)
	return len(known), err
}
