package docker

import (
	"context"
	"slices"
	"strings"
	"sync"

	"berth/jobs"
)

// volumes are the volumes without a name that a container has, by which it is found out
// whether they have gone with it.
type volumes struct {
	p     *program
	mu    sync.Mutex
	names []string
}

// of notes those of a container.
func (v *volumes) of(ctx context.Context, ref string) {
	list, err := v.p.inspect(ctx, ref)
	if err != nil {
		return // what cannot be looked at is looked for by its container alone
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range list[0].Mounts {
		// One that its user has named is its user's.
		if m.Type == "volume" && isDigest(m.Name) && !slices.Contains(v.names, m.Name) {
			v.names = append(v.names, m.Name)
		}
	}
}

// isDigest tells whether a volume's name is one that the daemon has made.
func isDigest(name string) bool {
	return len(name) == 64 && strings.Trim(name, "0123456789abcdef") == ""
}

// look looks for containers, and for these volumes.
func (v *volumes) look(ctx context.Context, d *jobs.Destroyed, find func(ctx context.Context) ([]container, error)) {
	list, err := find(ctx)
	switch {
	case err != nil:
		d.Left = append(d.Left, "what "+v.p.path+" has of it is not known: "+jobs.Printable(err.Error()))
		return
	case len(list) == 0:
		d.Gone = append(d.Gone, "its container")
	}
	for _, c := range list {
		d.Left = append(d.Left, "container "+short(c.ID))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range v.names {
		switch _, err := v.p.ask(ctx, askLimit, "volume", "inspect", "--format", "{{.Name}}", name); {
		case err == nil:
			d.Left = append(d.Left, "volume "+name)
		case absent(err):
			d.Gone = append(d.Gone, "volume "+short(name))
		default:
			d.Left = append(d.Left, "volume "+name+" is not known: "+jobs.Printable(err.Error()))
		}
	}
}
