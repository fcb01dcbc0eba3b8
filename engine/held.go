package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"berth/internal/config/keys"
	"berth/internal/node/allocations"
	"berth/internal/remote/replica"
	"berth/jobs"
)

// planHeld settles what an environment in an allocation has beside the others,
// and refuses what only an allocation has where there is none: asked are the
// options without what the configuration says for allocations.
func (e *Engine) planHeld(ctx context.Context, s *jobs.EnvSpec, o, asked jobs.EnvOptions) error {
	if s.Scheduler == "" {
		s.Target, s.Login, s.Slurm, s.Profile = "", nil, jobs.SlurmOptions{}, jobs.Profile{}
		return onlyAllocated(asked)
	}
	s.Resources.Time, s.Resources.GPUs, s.Resources.Nodes = o.Resources.Time, o.Resources.GPUs, o.Resources.Nodes
	if o.Resources.Tasks > 1 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "an environment is one task, not several",
			Hint: "berth submit --ntasks runs a command in several; in an environment, leave it out"}
	}
	sc, _, err := e.holder(s)
	if err != nil {
		return err
	}
	if s.Login == nil {
		if got := sc.Check(ctx); got.Health != jobs.Healthy {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "the scheduler " + s.Scheduler + " cannot be used here: " + got.Reason, Hint: got.Hint}
		}
	}
	keys.Under(&s.Place, jobs.Place{Slurm: o.Profile.Slurm}, "slurm")
	put(&s.Scratch, o.Profile.Scratch)
	put(&s.Stage, o.Profile.Stage)
	s.GPU = s.GPUKind()
	return nil
}

// onlyAllocated refuses what has no meaning without an allocation.
func onlyAllocated(o jobs.EnvOptions) error {
	for _, k := range []struct {
		what string
		set  bool
	}{
		{"a time limit", o.Resources.Time != 0}, {"GPUs of a scheduler", o.Resources.GPUs != ""}, {"a number of nodes", o.Resources.Nodes != 0},
		{"options of a scheduler", o.Slurm.Partition != "" || o.Slurm.Account != "" ||
			o.Slurm.QOS != "" || o.Slurm.Constraint != "" || len(o.Slurm.Extra) > 0},
	} {
		if k.set {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: k.what + ": not available without an allocation",
				Hint: "--scheduler slurm, or --target NAME"}
		}
	}
	return nil
}

// allocates is the scheduler whose allocation an environment is to have; ""
// keeps it where it is used, which is all that the local one could do.
func (e *Engine) allocates(name string) (string, error) {
	if !jobs.IsCluster(name) {
		return "", nil
	}
	sc, err := e.scheduler(name)
	if err != nil {
		return "", err
	}
	return sc.Name(), nil
}

// holder is the scheduler of a held environment, and its cluster behind a login
// host, or nil.
func (e *Engine) holder(s *jobs.EnvSpec) (jobs.Cluster, site, error) {
	// Their places in the world are told in the same words.
	as := &jobs.Spec{Place: jobs.Place{Scheduler: s.Scheduler, Login: s.Login}}
	site, err := e.site(as)
	if err != nil {
		return nil, nil, err
	}
	sc, _, err := e.schedulerOf(as)
	if err != nil {
		return nil, nil, err
	}
	h, ok := sc.(jobs.Cluster)
	if !ok {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the scheduler " + s.Scheduler + " cannot hold environments",
			Hint: "--scheduler slurm"}
	}
	return h, site, nil
}

// place is what gets at the environment's allocation, for a held one.
func (v *Environment) place() (*allocations.Place, error) {
	sc, site, err := v.e.holder(&v.Spec)
	if err != nil {
		return nil, err
	}
	p := &allocations.Place{
		Spec: &v.Spec, Record: v.dir, Holder: v.e.holds, Scheduler: sc, Immediate: v.Immediate, Now: v.e.Now, Sleep: v.e.Sleep,
		Ground: func(context.Context) (allocations.Ground, error) {
			node, err := v.e.Node()
			return allocations.Ground{Dir: v.dir, Node: node, Identity: identity()}, err
		},
		Submit: func(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
			h, err := sc.Submit(ctx, l, script)
			if unclear(err) {
				h, err = v.e.resolveUnclear(ctx, sc, l.Name, err)
			}
			return h, err
		},
	}
	if v.asked != nil {
		p.Scheduler = v.asked
	}
	if site != nil {
		p.Far = site
		p.Ground = func(ctx context.Context) (allocations.Ground, error) {
			f, err := site.Facts(ctx)
			return allocations.Ground{Dir: filepath.Join(f.Home, replica.FarEnvs, v.Spec.ID), Node: f.Node, Identity: f.Identity}, err
		}
	}
	return p, nil
}

// holds is the program that holds a connection on this machine: berth-node
// where it runs, which is Linux, else this program itself.
func (e *Engine) holds() (string, error) {
	if runtime.GOOS == "linux" {
		return e.Node()
	}
	return os.Executable()
}

// Ends is when the time of the allocation is up in which the environment was
// open last; zero is never, or not known.
func (v *Environment) Ends() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ends
}

// soon is when the end of an allocation is worth a word.
const soon = 10 * time.Minute

// endsSoon is that word, or "".
func endsSoon(ends, now time.Time) string {
	left := ends.Sub(now)
	if ends.IsZero() || left > soon {
		return ""
	}
	return fmt.Sprintf("the allocation ends in %v, at %s; the next command after that gets another one, with the same files",
		max(0, left.Round(time.Second)), ends.Local().Format(time.TimeOnly))
}

// warn tells of the end of an allocation while it comes nearer.
func warn(tell func(string), ends time.Time, over <-chan struct{}) {
	if ends.IsZero() {
		return
	}
	for _, left := range []time.Duration{soon, 5 * time.Minute, time.Minute} {
		wait := time.Until(ends.Add(-left))
		if wait <= 0 {
			continue // told when it was opened
		}
		t := time.NewTimer(wait)
		select {
		case <-over:
			t.Stop()
			return
		case <-t.C:
			tell(endsSoon(ends, time.Now()))
		}
	}
}

// afterwards bounds the question what became of an allocation.
const afterwards = 10 * time.Second

// fate says what became of the allocation of an environment that broke off.
func (v *Environment) fate() string {
	if v.Spec.Scheduler == "" {
		return ""
	}
	p, err := v.place()
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), afterwards)
	defer cancel()
	return p.Fate(ctx)
}

// stopHeld gives the allocation back. told is how its keeper took it, see
// [Environment.stop].
func (v *Environment) stopHeld(ctx context.Context, told error) error {
	p, err := v.place()
	if err != nil {
		return err
	}
	if err := p.Stop(ctx, told == nil); err != nil {
		if told != nil && !errors.Is(told, ErrNotRunning) {
			return errors.Join(told, err)
		}
		return err
	}
	return nil
}

// removeHeld removes what the environment has on its cluster.
func (v *Environment) removeHeld(ctx context.Context) error {
	p, err := v.place()
	if err != nil || p.Far == nil {
		return err
	}
	g, err := p.Ground(ctx)
	if err != nil {
		return err
	}
	return p.Far.RemoveEnv(ctx, g.Dir, v.Spec.ID)
}

// sameScheduler refuses an environment that is kept elsewhere than wanted.
func (e *Engine) sameScheduler(s *jobs.EnvSpec, o jobs.EnvOptions) error {
	if o.Scheduler == "" || o.Configured != nil && !placed(o) {
		return nil
	}
	wants, err := e.allocates(o.Scheduler)
	if err != nil {
		return err
	}
	where := func(scheduler string, login *jobs.SSHSpec) string {
		switch {
		case scheduler == "":
			return "where it is used"
		case login == nil:
			return "in allocations of " + scheduler
		}
		return "in allocations of " + scheduler + " by way of " + login.Host
	}
	if has, want := where(s.Scheduler, s.Login), where(wants, o.Login); has != want {
		return differs(s, "another place: it is kept "+has+", not "+want)
	}
	if wants == "" {
		return nil
	}
	return samePlace(s, o.Place, true)
}
