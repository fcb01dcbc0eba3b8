package runner

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"berth/backends/external"
	"berth/jobs"
)

// ofTask parts the passed values: those that the task is to have, and those of
// the program of its backend.
func (r *attempt) ofTask(secrets []string) (task, keys []string) {
	if r.spec.External == nil {
		return secrets, nil
	}
	for _, kv := range secrets {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(r.spec.EnvNames, name) {
			task = append(task, kv)
		}
	}
	return task, secrets // what both have is the same
}

// newSandbox has a sandbox made for the attempt, by the program of its backend.
// It ends with the attempt, or when its time is up.
func (r *attempt) newSandbox(ctx context.Context) (*far, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	x := *r.spec.External
	x.Job = r.spec.ID
	s := &jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: r.info.ID, Name: r.spec.Name, Strict: true, User: r.spec.User,
		Place: jobs.Place{
			Backend: r.spec.Backend, Level: r.spec.Level, Image: r.spec.Image, Resources: r.spec.Resources, Network: r.spec.Network, External: &x,
		},
	}
	b := &external.Backend{Environ: func() []string { return append(os.Environ(), r.keys...) }}
	o, err := b.Open(ctx, s, jobs.OpenPlace{Dir: r.dir, Guest: self, Scratch: r.scratch.Dir, On: r.on, Progress: func(text string) { r.event("preparing", text) }})
	if err != nil {
		if k := jobs.KindOf(err); k == jobs.KindInfra || k == jobs.KindUnclear || ctx.Err() != nil {
			// It may have been made all the same.
			ctx, stop := context.WithTimeout(context.Background(), cleanTime)
			defer stop()
			if derr := b.Destroy(ctx, s, r.dir, r.on); derr != nil {
				r.note("a sandbox of the backend " + s.Backend + " may be left until its time is up, and cost; berth env gc ends it: " + derr.Error())
			}
		}
		return nil, err
	}
	for _, n := range o.Notes {
		r.note(n)
	}
	what, until := "the sandbox of the backend "+s.Backend, "; it costs until it ends"
	if m, err := external.Load(r.dir); err == nil && m != nil {
		what += " " + m.Ref
		if !m.Ends.IsZero() {
			until += " at " + m.Ends.UTC().Format(time.RFC3339)
		}
	}
	until += ", and berth env gc ends it now"
	return &far{
		what:    what,
		until:   until,
		opening: *o,
		dir:     path.Join(farJobs, r.info.ID),
		clean:   func(ctx context.Context, _ *far) error { return o.End(ctx) },
	}, nil
}
