//go:build !berthnode

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/internal/queue/schedule"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// What a job that ticks asks for, and when it comes.
const (
	tickTime   = 10 * time.Minute // a plan may fetch an image
	tickMemory = 512 * jobs.MiB
	// tickLatest is the longest time to the next one, whatever is due.
	tickLatest = 24 * time.Hour
	// tickLate is how long after its time a job that ticks may still wait in the queue
	// before the scheduler is asked whether it is there.
	tickLate = 10 * time.Minute
	// keptTicks are the directories of earlier jobs that are kept.
	keptTicks = 5
)

// TickJobs are small jobs of a cluster's that tick: each submits its successor, which
// begins at the next due time, and ends.
type TickJobs struct {
	Program string            `json:"program"`  // berth, at a path that the nodes see
	Every   time.Duration     `json:"every_ns"` // between two of them at least
	Slurm   jobs.SlurmOptions `json:"slurm"`
	Profile jobs.Profile      `json:"profile"`
	Env     []string          `json:"env,omitempty"` // beside BERTH_HOME
}

// tickLink is one of these jobs, and N.json in the chain's directory; the highest N counts.
type tickLink struct {
	Version   int       `json:"version"`
	N         int       `json:"n"`
	Off       bool      `json:"off,omitempty"` // the chain ends here
	ID        string    `json:"id,omitempty"`
	Scheduler string    `json:"scheduler,omitempty"`
	Begin     time.Time `json:"begin,omitzero"`
	TickJobs
	handle *jobs.Handle
}

func (e *Engine) chain() string { return schedule.At(e.Store.Home()).Chain() }

func (l *tickLink) dir(chain string) string { return filepath.Join(chain, strconv.Itoa(l.N)) }

// lastTick returns the last link, or nil where there is none or the chain has ended.
func (e *Engine) lastTick() (link *tickLink, n int, err error) {
	files, err := filepath.Glob(filepath.Join(e.chain(), "*.json"))
	if err != nil {
		return nil, 0, err
	}
	for _, f := range files {
		if i, err := strconv.Atoi(filepath.Base(f[:len(f)-len(".json")])); err == nil {
			n = max(n, i)
		}
	}
	if n == 0 {
		return nil, 0, nil
	}
	link = &tickLink{}
	if err := readTick(filepath.Join(e.chain(), fmt.Sprintf("%d.json", n)), link); err != nil {
		return nil, n, err
	}
	if link.Off {
		return nil, n, nil
	}
	var h jobs.Handle
	if err := readTick(filepath.Join(link.dir(e.chain()), sweepHandle), &h); err == nil {
		link.handle = &h
	}
	return link, n, nil
}

func readTick(path string, v any) error {
	b, err := disk.ReadRegular(path, 1<<20)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " cannot be read", Err: err}
	}
	return nil
}

// StartTicks submits the first of the jobs that tick, and returns when it begins. Those
// of an earlier call end.
func (e *Engine) StartTicks(ctx context.Context, o TickJobs) (begin time.Time, err error) {
	if o.Profile.NodesMute {
		return begin, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "the profile " + o.Profile.Name + " says that nodes may not submit jobs, so no job can start schedules",
			Hint: "on a login node: berth schedule install --crontab"}
	}
	var sc jobs.Scheduler
	for _, s := range e.Schedulers {
		if _, ok := s.(jobs.Cluster); ok && s.Check(ctx).Health == jobs.Healthy {
			sc = s
			break
		}
	}
	if sc == nil {
		return begin, &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no cluster here that could start what is due",
			Hint: "by cron of this machine: berth schedule install --crontab"}
	}
	was, n, err := e.lastTick()
	if err != nil {
		return begin, err
	}
	link, err := e.nextTick(&tickLink{N: n, Scheduler: sc.Name(), TickJobs: o}, 0)
	if err != nil {
		return begin, err
	}
	if err := e.submitTick(ctx, sc, link); err != nil {
		if _, off := e.endTicks(link.N); off != nil {
			err = errors.Join(err, off)
		}
		return begin, err
	}
	return link.Begin, e.cancelTick(ctx, was)
}

// nextTick records the link behind another one. If another process has done that, it is
// that process's link that is returned.
func (e *Engine) nextTick(l *tickLink, least time.Duration) (*tickLink, error) {
	now := e.Now()
	next := &tickLink{Version: 1, N: l.N + 1, Scheduler: l.Scheduler, TickJobs: l.TickJobs, Begin: now.Add(tickLatest)}
	all, err := schedule.At(e.Store.Home()).List()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if due := s.Next(now); !due.IsZero() && due.Before(next.Begin) {
			next.Begin = due
		}
	}
	if soonest := now.Add(least); next.Begin.Before(soonest) {
		next.Begin = soonest
	}
	next.Begin = next.Begin.UTC().Truncate(time.Second)
	if next.ID, err = ids.New(); err != nil {
		return nil, err
	}
	path := filepath.Join(e.chain(), fmt.Sprintf("%d.json", next.N))
	if err := os.MkdirAll(next.dir(e.chain()), 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the job that starts schedules", Err: err}
	}
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return nil, err
	}
	won, err := store.CreateOnce(path, append(b, '\n'))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the job that starts schedules", Err: err}
	}
	if !won {
		next = &tickLink{}
		return next, readTick(path, next)
	}
	for n := next.N - keptTicks; n > 0; n-- {
		old := filepath.Join(e.chain(), strconv.Itoa(n))
		if os.Remove(old+".json") != nil {
			break
		}
		_ = disk.RemoveTree(old)
	}
	return next, nil
}

// submitTick submits a link's job, unless the scheduler has it. A second one would do no
// harm: of two with the same number one submits the successor.
func (e *Engine) submitTick(ctx context.Context, sc jobs.Scheduler, l *tickLink) error {
	dir := l.dir(e.chain())
	handle := filepath.Join(dir, sweepHandle)
	if err := readTick(handle, &jobs.Handle{}); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	launch := jobs.Launch{
		Attempt:   l.ID,
		Name:      "berth-tick-" + l.ID,
		Dir:       dir,
		Profile:   l.Profile,
		Slurm:     l.Slurm,
		Identity:  identity(),
		Argv:      []string{l.Program, "schedule", "tick", "--chain", strconv.Itoa(l.N)},
		Env:       append([]string{"BERTH_HOME=" + e.Store.Home()}, l.Env...),
		Comment:   []string{"berth schedule: submits what is due, and the next one of these", "berth schedule install --uninstall ends that"},
		Resources: jobs.Resources{Memory: tickMemory, Time: tickTime},
		Aside:     true,
		Requeue:   true,
		Wait:      max(l.Begin.Sub(e.Now()), 0),
	}
	script, err := sc.Render(launch)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, sweepScript)
	if err := disk.Create(path, []byte(script), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "write the script of a job that starts schedules", Err: err}
	}
	h, err := sc.Submit(ctx, launch, path)
	if unclear(err) {
		if found, ferr := sc.Find(ctx, []string{launch.Name}); ferr == nil && found[launch.Name].NativeID != "" {
			h, err = found[launch.Name], nil
		}
	}
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(h, "", "  ")
	if err == nil {
		_, err = store.CreateOnce(handle, append(b, '\n'))
	}
	return err
}

// ContinueTicks is the first thing that job n of a chain does: it submits its successor.
// False is that another one goes on already, or the chain has ended.
func (e *Engine) ContinueTicks(ctx context.Context, n int) (bool, error) {
	link, last, err := e.lastTick()
	if err != nil || link == nil || last > n+1 || last < n {
		return false, err
	}
	if last == n { // else a job that was begun again, after it had recorded its successor
		if link, err = e.nextTick(link, link.Every); err != nil || link.Off {
			return false, err
		}
	}
	sc, err := e.scheduler(link.Scheduler)
	if err == nil {
		err = e.submitTick(ctx, sc, link)
	}
	return true, err
}

// HastenTicks submits an earlier job where a schedule is due before the chain's next one
// begins. Without a chain it does nothing.
func (e *Engine) HastenTicks(ctx context.Context) error {
	link, _, err := e.lastTick()
	if err != nil || link == nil {
		return err
	}
	all, err := schedule.At(e.Store.Home()).List()
	if err != nil {
		return err
	}
	now, early := e.Now(), false
	for _, s := range all {
		due := s.Next(now)
		early = early || !due.IsZero() && due.Before(link.Begin)
	}
	if !early || link.Begin.Before(now) {
		return nil
	}
	next, err := e.nextTick(link, 0)
	if err != nil || next.Off {
		return err
	}
	sc, err := e.scheduler(next.Scheduler)
	if err == nil {
		err = e.submitTick(ctx, sc, next)
	}
	if err != nil {
		return err
	}
	return e.cancelTick(ctx, link)
}

// StopTicks ends a chain, and tells whether there was one.
func (e *Engine) StopTicks(ctx context.Context) (bool, error) {
	link, n, err := e.lastTick()
	if err != nil || link == nil {
		return false, err
	}
	if won, err := e.endTicks(n); err != nil || !won { // its job has submitted the next one meanwhile
		if err == nil {
			return e.StopTicks(ctx)
		}
		return false, err
	}
	return true, e.cancelTick(ctx, link)
}

func (e *Engine) endTicks(n int) (bool, error) {
	end := tickLink{Version: 1, N: n + 1, Off: true, Begin: e.Now().UTC()}
	b, err := json.MarshalIndent(end, "", "  ")
	if err != nil {
		return false, err
	}
	return store.CreateOnce(filepath.Join(e.chain(), fmt.Sprintf("%d.json", end.N)), append(b, '\n'))
}

// cancelTick takes a link's job out of the queue. One that has begun finds out by itself
// that it is not the last.
func (e *Engine) cancelTick(ctx context.Context, l *tickLink) error {
	if l == nil || l.handle == nil {
		return nil
	}
	sc, err := e.scheduler(l.Scheduler)
	if err != nil {
		return err
	}
	return sc.Cancel(ctx, []jobs.Handle{*l.handle})
}

// Ticks tells when the next job that ticks begins; zero is that there is no chain of
// them. An error is that there should be one, and it is lost, or cannot be asked for.
func (e *Engine) Ticks(ctx context.Context) (begin time.Time, err error) {
	link, _, err := e.lastTick()
	if err != nil || link == nil {
		return begin, err
	}
	lost := &jobs.Error{Kind: jobs.KindInfra, Msg: "the job that starts what is due is gone from the queue",
		Hint: "berth schedule install submits it again"}
	if e.Now().Sub(link.Begin) < tickLate {
		return link.Begin, nil
	}
	if link.handle == nil {
		return link.Begin, lost
	}
	sc, err := e.scheduler(link.Scheduler)
	if err != nil {
		return link.Begin, err
	}
	known, err := sc.Status(jobs.WithLook(ctx), []jobs.Handle{*link.handle})
	if err != nil {
		return link.Begin, err
	}
	if s, ok := known[link.handle.Name]; !ok || s.State.Final() {
		return link.Begin, lost
	}
	return link.Begin, nil
}
