package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"berth/backends/local"
	"berth/internal/sys/run"
	"berth/jobs"
)

var _ jobs.Opener = Backend{}

// Open of an environment is called on the host itself, by the keeper there: its guest
// runs on the bare host, as with backend local. That of an attempt is called here, by
// its runner, and puts the program on the host.
func (b Backend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if at.Attempt != nil {
		return b.attempt(ctx, s, at)
	}
	return local.Backend{}.Open(ctx, s, at)
}

func (b Backend) attempt(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if s.SSH == nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the job names no host of ssh"}
	}
	b.On, b.Env, b.Join = at.On, Environ(os.Environ()), true
	h, err := b.Host(*s.SSH)
	if err != nil {
		return nil, err
	}
	name, err := h.Install(ctx, true, at.Progress)
	if err != nil {
		return nil, err
	}
	argv, err := b.Argv(jobs.Invocation{Guest: name, Place: jobs.Place{SSH: s.SSH}}, []string{"guest"})
	if err != nil {
		return nil, err
	}
	dir := path.Join(jobs.FarJobs, s.ID)
	return &jobs.Opening{Argv: argv, Env: b.Env, Level: b.Level(), Far: &jobs.Far{What: h.String(), Dir: dir,
		Remove: func(ctx context.Context, copied bool) error {
			if !copied {
				return nil
			}
			p, err := h.Start(ctx, jobs.Cmd{Argv: []string{"/bin/sh", "-c", `chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"`, "sh", dir}})
			if err != nil {
				return err
			}
			e, err := p.Wait()
			if err == nil && !e.OK() {
				err = errors.New(e.String())
			}
			return err
		}}}, nil
}

// remove takes away the directory $1 of the environment $2, if its record says
// that it is that one's.
const remove = `d=$HOME/$1; [ -d "$d" ] || exit 0; grep -qs "\"$2\"" "$d/env.json" || exit 4; chmod -R u+rwX "$d" 2>/dev/null; rm -rf "$d"`

// Remove removes what the environment has on its host: its record, its logs.
// What its commands wrote elsewhere there is the user's. The environment must
// have been stopped.
func (b Backend) Remove(ctx context.Context, s *jobs.EnvSpec, _ jobs.Starter) error {
	if s.SSH == nil || !jobs.ValidID(s.ID) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the environment %q names no host of ssh", s.Name)}
	}
	h, err := b.Host(*s.SSH)
	if err != nil {
		return err
	}
	_, err = h.sh(ctx, nil, remove, envDir+s.ID, s.ID)
	var failed *run.Error
	if errors.As(err, &failed) {
		what := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("remove ~/%s%s on %s", envDir, s.ID, h), Err: err}
		if failed.Exit.Code == 4 {
			what.Err = errors.New("it does not hold this environment's record")
		}
		return what
	}
	return err
}

// List finds nothing: what there is stands on other machines.
func (Backend) List(context.Context, jobs.Starter) ([]jobs.Found, error) { return nil, nil }

// Reap is never asked for anything.
func (Backend) Reap(context.Context, jobs.Starter, jobs.Found) error { return nil }
