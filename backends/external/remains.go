package external

import (
	"context"
	"time"

	"berth/backends/external/protocol"
	"berth/jobs"
)

// remainsWait is how long a service may still list a sandbox that it has destroyed.
const remainsWait = 20 * time.Second

// remains asks the service whether a destroyed sandbox is gone from its list.
func (b *Backend) remains(ctx context.Context, s *jobs.EnvSpec, on jobs.Starter, d *jobs.Destroyed) {
	c, err := b.of(s, on)
	if err != nil {
		d.Left = append(d.Left, "whether its sandbox is gone is not known: "+jobs.Printable(err.Error()))
		return
	}
	r := protocol.Request{Verb: protocol.VerbList, Options: s.External.Options,
		Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: s.External.Owner}}
	for until := time.Now().Add(remainsWait); ; {
		var l protocol.Listed
		var found []protocol.Found
		if err = c.ask(ctx, r, nil, &l); err == nil {
			found, err = c.checkFound(l.Found, r.Tags)
		}
		if err != nil {
			d.Left = append(d.Left, "whether its sandbox is gone is not known: "+jobs.Printable(err.Error()))
			return
		}
		left := ""
		for _, f := range found {
			if f.Tags[protocol.TagEnv] == s.ID {
				left = f.Ref
			}
		}
		switch {
		case left == "":
			d.Gone = append(d.Gone, "its sandbox")
			return
		case time.Now().After(until):
			d.Left = append(d.Left, "sandbox "+jobs.Printable(left))
			return
		}
		select {
		case <-ctx.Done():
			until = time.Time{}
		case <-time.After(500 * time.Millisecond):
		}
	}
}
