package engine

import (
	"context"
	"slices"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
)

// Program is a backend that is a program of its own. It is used only when it is
// named.
type Program interface {
	jobs.Opener
	// Installed is nil when the program is there.
	Installed() error
	// Settle completes the record of a new environment, or refuses what the
	// program cannot do.
	Settle(ctx context.Context, s *jobs.EnvSpec) error
	// Left reports whether, by the environment's record, its sandbox may still run
	// without a keeper. The environment was opened before.
	Left(s *jobs.EnvSpec) bool
	// LeftOf reports the same of the sandbox of an attempt that has begun, by what is
	// recorded in its directory.
	LeftOf(dir string, now time.Time) bool
	// End stops the sandbox, so that it costs nothing more. Persistent files stay.
	End(ctx context.Context, s *jobs.EnvSpec) error
	// Keys are the variables of this process, secrets among them, that the
	// program gets wherever it is started.
	Keys() []string
}

// program returns the backend of a record that is a program, or nil.
func (e *Engine) program(x *jobs.ExternalSpec, backend string) Program {
	if x == nil || e.Program == nil {
		return nil
	}
	return e.Program(backend)
}

// endSandbox ends the sandbox of an environment which its keeper has not ended:
// it was killed, or the service could not be reached. Without streams there is no
// keeper.
func (v *Environment) endSandbox(ctx context.Context) error {
	p := v.e.program(v.Spec.External, v.Spec.Backend)
	if p == nil || !p.Left(&v.Spec) {
		return nil
	}
	if last, err := keeper.Peek(v.dir); last == nil && err == nil && !v.oneShot() {
		return nil // it was never opened
	}
	release, err := keeper.Hold(v.dir, v.Spec.ID)
	if err != nil {
		return err
	}
	defer release()
	if err := p.End(ctx, &v.Spec); err != nil {
		return err
	}
	if v.Progress != nil && !v.oneShot() {
		v.Progress("the sandbox of the environment " + v.Spec.Name + " still ran, without a keeper, and was ended")
	}
	return nil
}

// leftByJobs are the backends that are programs at which a sandbox of a recorded
// job may run. What could not be read is in the error.
func (e *Engine) leftByJobs() (names []string, err error) {
	if e.Program == nil {
		return nil, nil
	}
	list, err := e.Store.List()
	for _, r := range list {
		p := e.program(r.Spec.External, r.Spec.Backend)
		if p == nil || slices.Contains(names, r.Spec.Backend) {
			continue
		}
		if slices.ContainsFunc(r.Attempts, func(a jobs.Attempt) bool {
			// It was made in the hour after the claim, and ends by itself.
			return a.Claim != nil && e.Now().Before(a.Claim.Time.Add(r.Spec.External.Life+jobMargin)) && p.LeftOf(a.Dir, e.Now())
		}) {
			names = append(names, r.Spec.Backend)
		}
	}
	return names, err
}

// openers are all backends that may have something of an environment's, or of a
// job's: those that are programs where they are installed, or were, and those that
// are named.
func (e *Engine) openers(used ...string) []jobs.Opener {
	var out []jobs.Opener
	var have []string
	for _, b := range e.Backends {
		if op, ok := b.(jobs.Opener); ok {
			out, have = append(out, op), append(have, b.Name())
		}
	}
	if e.Program == nil || e.Programs == nil {
		return out
	}
	names := append(e.Programs(), used...)
	specs, _ := e.Store.ListEnvs()
	for _, s := range specs {
		if s.External != nil {
			names = append(names, s.Backend)
		}
	}
	for _, name := range names {
		if p := e.Program(name); p != nil && !slices.Contains(have, name) {
			out, have = append(out, p), append(have, name)
		}
	}
	return out
}

// jobMargin is how much longer than its time limit the sandbox of a job may
// live: its files come and go in that time.
const jobMargin = time.Hour

// settleProgram settles a job on a backend that is a program. The job itself is
// kept by a runner on this machine; its work tree goes to the sandbox and comes
// back.
func settleProgram(ctx context.Context, s *jobs.Spec, p Program, dry bool) error {
	like := jobs.EnvSpec{
		Name: s.Name, Strict: true,
		Place: jobs.Place{Backend: s.Backend, Image: s.Image, Resources: s.Resources, Network: s.Network, External: s.External},
	}
	if s.Resources.Time > 0 {
		like.External.Life = s.Resources.Time + jobMargin
	}
	if dry {
		return nil
	}
	if err := p.Settle(ctx, &like); err != nil {
		return err
	}
	if like.External.OneShot {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + s.Backend + " runs single commands, and no jobs",
			Hint: "berth exec --backend " + s.Backend + " -- COMMAND; or name another --backend"}
	}
	s.External, s.Level = like.External, like.Level
	s.Notes = append(s.Notes, like.Notes...)
	return nil
}

// jobOver says why the sandbox of an attempt is used no more; "" is that it may
// be.
func (e *Engine) jobOver(job, attempt string) (string, error) {
	rec, err := e.Store.Find(job)
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound:
		return "no job is recorded for it", nil
	case err != nil:
		return "", err
	}
	over := "its job " + jobs.Short(rec.Spec.ID) + " has ended"
	for _, a := range rec.Attempts {
		switch {
		case a.Info.ID != attempt || a.Exit != nil:
		case !jobs.StateOf(rec).Final():
			return "", nil
		case rec.Spec.Overlay.Keep != "":
			return over + ", and its runner was killed before this was kept", nil
		}
	}
	return over, nil
}
