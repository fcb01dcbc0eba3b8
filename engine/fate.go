package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/node/keeper"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// perTask tells whether an environment is to be one task's alone, by the options or by
// the configuration.
func perTask(o jobs.EnvOptions) bool {
	return o.PerTask || o.Configured != nil && o.Configured.PerTask != nil && o.Configured.PerTask(unlessAuto(wantedBackend(o)))
}

// PerTask reports whether the options mean an environment that is made for whoever asks:
// none is named, and each task is to have one of its own.
func PerTask(o jobs.EnvOptions) bool { return o.Name == "" && perTask(o) }

// ownName is what an environment is called that its caller has not named.
func ownName() (string, error) {
	id, err := ids.New()
	if err != nil {
		return "", err
	}
	return "task-" + id[len(id)-12:], nil // its random digits
}

// shorter is the shorter one of two times, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// settleFate settles what becomes of a job's place, and refuses what another task could
// find there.
func settleFate(s *jobs.Spec) error {
	if s.PerTask && s.Overlay.Name != "" {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "[terminal] overlay: the overlay " + s.Overlay.Name + " is not of this task alone, and per_task_workspace is set",
			Hint: "leave overlay out: the task then has a layer of its own; or per_task_workspace: berth config show --origin"}
	}
	if s.DestroyAfter <= 0 || s.Resources.Time > 0 && s.Resources.Time <= s.DestroyAfter {
		return nil
	}
	s.Notes = append(s.Notes, fmt.Sprintf("its time limit is %s, because auto_destroy_after_seconds is", s.DestroyAfter))
	s.Resources.Time = s.DestroyAfter
	if s.Retry != nil {
		r := *s.Retry
		r.MaxTime = shorter(r.MaxTime, s.DestroyAfter)
		s.Retry = &r
	}
	return nil
}

// expired removes a recorded environment whose time is up, as [jobs.EnvSpec.Expired] has it.
// The note says what is left of it.
func (e *Engine) expired(ctx context.Context, spec *jobs.EnvSpec) (gone bool, note string, err error) {
	if !spec.Expired(e.Now()) {
		return false, "", nil
	}
	v := &Environment{e: e, Spec: *spec, dir: e.Store.EnvDir(spec.Name)}
	d, err := v.Destroy(ctx)
	if err != nil {
		// Another client may have removed it meanwhile, and made the next one.
		now, lerr := store.LoadEnv(v.dir)
		if jobs.KindOf(lerr) != jobs.KindNotFound && (lerr != nil || now.ID == spec.ID) {
			return false, "", err
		}
		if d != nil {
			note = err.Error()
		}
	}
	return true, note, nil
}

// endWait bounds the wait for a keeper that ends, which is longer than it takes to destroy
// what it has, and endPause is between two looks.
const (
	endWait  = 3 * time.Minute
	endPause = 200 * time.Millisecond
)

// Leave ends the use of an environment, and destroys it where it was made for this use
// alone, see [PerTask]: what was found afterwards is returned then.
func (v *Environment) Leave(ctx context.Context) (*jobs.Destroyed, error) {
	if !v.made || !v.Spec.Once || !v.Spec.Destroy {
		v.Close()
		return nil, nil
	}
	return v.Destroy(context.WithoutCancel(ctx))
}

// Destroy stops the environment, whatever runs in it, removes it with its files, and looks
// whether they are gone: what is left makes an error. One that cannot be stopped, or whose
// files cannot be removed, keeps its record, and its files where another process has them.
func (v *Environment) Destroy(ctx context.Context) (*jobs.Destroyed, error) {
	var last *keeper.Info
	var far string
	var unread error
	// A keeper that is not asked any more may be at work at what it destroys.
	for wait := v.e.Now().Add(endWait); ; {
		err := v.stopKept(ctx)
		if err == nil {
			last, far, unread = v.lastWords(ctx)
			err = v.Remove(ctx, false)
		}
		if err == nil {
			break
		}
		if jobs.KindOf(err) != jobs.KindAgain || !keeper.Alive(v.dir) || v.e.Now().After(wait) {
			return nil, err
		}
		if v.e.Sleep(ctx, endPause) != nil {
			return nil, err
		}
	}
	d := &jobs.Destroyed{Time: v.e.Now().UTC()}
	if unread != nil {
		d.Left = append(d.Left, "what it had on its node is not known: "+jobs.Printable(unread.Error()))
	}
	near := v.Spec.Login == nil && (last == nil || last.Near(lease.Self()))
	switch {
	case last == nil:
	case !near && last.Destroyed != nil: // its keeper has looked there
		d.Gone, d.Left = slices.Clone(last.Destroyed.Gone), slices.Clone(last.Destroyed.Left)
	case !near && last.Scratch != "":
		d.Left = append(d.Left,
			"its scratch directory "+last.Scratch+" on "+last.Host+", unless its keeper removed it: it was not looked for from here")
	default:
		if last.Scratch != "" {
			sweepKilled(ctx, last)
			disk.LookFor(d, "its scratch directory", last.Scratch)
		}
		if last.Destroyed != nil { // what was left then is looked for again
			d.Gone = append(d.Gone, slices.DeleteFunc(slices.Clone(last.Destroyed.Gone),
				func(s string) bool { return slices.Contains(d.Gone, s) })...)
		}
	}
	if far != "" { // its removal there has succeeded
		d.Gone = append(d.Gone, "its directory "+far)
	}
	v.look(ctx, d, near)
	var err error
	if len(d.Left) > 0 {
		err = &jobs.Error{Kind: jobs.KindInfra,
			Msg:  "the environment " + v.Spec.Name + " was removed, and something of it is left: " + strings.Join(d.Left, "; "),
			Hint: "berth env gc"}
	}
	return d, err
}

// lastWords reads what its keeper said at its end, which stands in the directory that goes.
// far is that directory where the record here is not that of the keeper.
func (v *Environment) lastWords(ctx context.Context) (last *keeper.Info, far string, err error) {
	if v.Spec.Login == nil {
		last, _ = keeper.Peek(v.dir)
		return last, "", nil
	}
	p, err := v.place()
	if err != nil {
		return nil, "", err
	}
	g, err := p.Ground(ctx)
	if err != nil {
		return nil, "", err
	}
	last, err = keeper.PeekWith(func(path string) ([]byte, error) { return p.Far.ReadFile(ctx, path) }, g.Dir)
	return last, g.Dir + " on " + v.Spec.Login.Host, err
}

// look looks for what is left of a removed environment; near is that its last keeper was
// on this machine.
func (v *Environment) look(ctx context.Context, d *jobs.Destroyed, near bool) {
	disk.LookFor(d, "the environment's directory", v.dir)
	b, err := v.e.backend(v.Spec.Backend)
	op, is := b.(jobs.Opener)
	if err != nil || !is || !v.Spec.Can().Daemon && v.Spec.External == nil || v.Spec.Scheduler != "" {
		return
	}
	if v.Spec.External == nil && !near {
		d.Left = append(d.Left, "what the backend "+v.Spec.Backend+" has of it on another machine was not looked for")
		return
	}
	list, err := op.List(ctx, run.Local{})
	if err != nil {
		d.Left = append(d.Left, "what the backend "+v.Spec.Backend+" has of it is not known: "+jobs.Printable(err.Error()))
		return
	}
	n := len(d.Left)
	for _, f := range list {
		if f.ID == v.Spec.ID && (f.Home == "" || f.Home == v.Spec.Home) && f.What != jobs.WhatSnapshot {
			d.Left = append(d.Left, f.What+" "+f.Ref)
		}
	}
	if len(d.Left) == n {
		d.Gone = append(d.Gone, "what the backend "+v.Spec.Backend+" had of it")
	}
}

// collectFates removes the environments whose time is up, and those that were made for one
// command whose client was killed.
func (e *Engine) collectFates(ctx context.Context, dry bool) (found []Orphan, err error) {
	specs, err := e.Store.ListEnvs()
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		o := Orphan{Found: jobs.Found{Backend: s.Backend, ID: s.ID, Name: s.Name, What: LeftEnv, Ref: s.Name, Created: s.Created, Home: s.Home}}
		dir := e.Store.EnvDir(s.Name)
		switch {
		case s.Expired(e.Now()):
			o.Why = "its auto_destroy_after_seconds (" + s.DestroyAfter.String() + ") have passed"
		case s.Once && s.Destroy && e.Now().Sub(s.Created) > onceFor && s.Scheduler == "" && !keeper.Alive(dir):
			o.Why = "it was made for one command, which has ended"
		default:
			continue
		}
		if !dry {
			v := &Environment{e: e, Spec: *s, dir: dir}
			_, o.Err = v.Destroy(ctx)
		}
		found = append(found, o)
	}
	return found, nil
}

// onceFor is how old an environment of one command is before one without a keeper is left
// behind: its client may be about to open it.
const onceFor = 10 * time.Minute
