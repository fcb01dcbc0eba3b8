package external

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/jobs"
)

// lostSnapshots are those of which there is no whole record: of what the service
// has, what its tags prove to be ours, and what is recorded as unclear.
func (b *Backend) lostSnapshots(c *caller, list []protocol.Snapshot, r protocol.Request) ([]jobs.Found, error) {
	if len(list) > protocol.MaxEntries {
		return nil, c.lied(fmt.Sprintf("its answer to list has %d snapshots", len(list)), nil)
	}
	known, err := b.Snapshots(b.Home, nil)
	if err != nil {
		return nil, err // an unreadable record must not make its snapshot an orphan
	}
	var out []jobs.Found
	for _, k := range known {
		if k.Unclear && time.Since(k.Created) > underWay {
			out = append(out, jobs.Found{Backend: b.Word, ID: k.EnvID, Name: k.Name, What: jobs.WhatSnapshot,
				Ref: r.Snapshot + k.Name, Created: k.Created})
		}
	}
	for _, s := range list {
		if err := c.checkSnapshot(r.Verb, &s, ""); err != nil {
			return nil, err
		}
		name, is := strings.CutPrefix(s.Name, r.Snapshot)
		recorded := slices.ContainsFunc(known, func(k jobs.Snapshot) bool { return k.Name == name })
		if is && !recorded && ours(s.Tags, r.Tags) && jobs.CheckSnapshotName(name) == nil {
			out = append(out, jobs.Found{
				Backend: b.Word,
				ID:      words(s.Tags[protocol.TagEnv]),
				Name:    name,
				What:    jobs.WhatSnapshot,
				Ref:     s.Name,
				Created: s.Created,
			})
		}
	}
	return out, nil
}

// reapSnapshot destroys what lostSnapshots has found.
func (b *Backend) reapSnapshot(ctx context.Context, c *caller, owner string, f jobs.Found) error {
	if k, err := readKept(b.Home, b.Word, f.Name); err == nil {
		return b.RemoveSnapshot(ctx, b.Home, k.Snapshot, c.on)
	} else if jobs.KindOf(err) != jobs.KindNotFound {
		return err
	}
	r := protocol.Request{Verb: protocol.VerbDestroy, Snapshot: snapshotName(owner, f.Name), Options: b.options(),
		Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner}}
	var none struct{}
	return c.ask(ctx, r, nil, &none)
}
