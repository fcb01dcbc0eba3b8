package external

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/jobs"
)

var _ jobs.Snapshotter = (*Backend)(nil)

// snapshotName is what a snapshot is called at the service; of no name it is
// what those of this owner begin with. Where the service has no tags for
// snapshots that, and the record, is the proof that one is ours.
func snapshotName(owner, name string) string {
	return "berth-snap-" + strings.ToLower(owner[:min(len(owner), 16)]) + "-" + name
}

func (b *Backend) noSnapshots() error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + b.Word + " has no snapshots",
		Hint: "copy what is to be kept: berth cp ENV:PATH .; or name another --backend"}
}

// able refuses a service that has no snapshots.
func (b *Backend) able(ctx context.Context) error {
	_, k, err := b.check(ctx)
	if err == nil && !k.Snapshots {
		err = b.noSnapshots()
	}
	return err
}

// Outlive is true: they are the service's.
func (*Backend) Outlive() bool { return true }

// asking is a request about a snapshot of an environment.
func asking(verb string, s *jobs.EnvSpec, dir, name string) protocol.Request {
	r := request(verb, s, dir)
	r.Snapshot = snapshotName(s.External.Owner, name)
	return r
}

// Snapshot keeps the files of an environment, which is opened if it does not
// run.
func (b *Backend) Snapshot(ctx context.Context, s *jobs.EnvSpec, name string, at jobs.SnapshotPlace) (*jobs.Snapshot, error) {
	if err := jobs.CheckSnapshotName(name); err != nil {
		return nil, err
	}
	if err := b.able(ctx); err != nil {
		return nil, err
	}
	c, err := b.of(s, at.On)
	if err != nil {
		return nil, err
	}
	if err := at.Open(ctx); err != nil {
		return nil, err
	}
	k := &kept{Version: 1, External: *s.External, Snapshot: jobs.Snapshot{
		Name:        name,
		Backend:     s.Backend,
		Environment: s.Name,
		EnvID:       s.ID,
		Created:     time.Now().UTC(),
		Unclear:     true,
	}}
	again, err := k.begin(s.Home)
	if err != nil {
		return nil, err
	}
	if again {
		var none struct{}
		if err := c.ask(ctx, asking(protocol.VerbDestroy, s, at.Dir, name), at.Progress, &none); err != nil {
			return nil, err
		}
	}
	var made protocol.Snapshotted
	r := asking(protocol.VerbSnapshot, s, at.Dir, name)
	if err = c.ask(ctx, r, at.Progress, &made); err == nil {
		err = c.checkSnapshot(r.Verb, &made.Snapshot, r.Snapshot)
	}
	switch jobs.KindOf(err) {
	case jobs.KindUsage, jobs.KindNotFound, jobs.KindAuth, jobs.KindAgain, jobs.KindConfig:
		return nil, errors.Join(err, k.forget(s.Home)) // it says that there is none
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUnclear, Msg: "whether the snapshot " + name + " was made is not known", Err: err,
			Hint: "look, and remove what there is of it: berth env snapshots --rm " + name}
	}
	k.ID, k.Bytes, k.Unclear = made.Snapshot.ID, made.Snapshot.Bytes, false
	return &k.Snapshot, k.save(s.Home)
}

// checkSnapshot looks at what a program says of a snapshot in its answer to verb.
func (c *caller) checkSnapshot(verb string, s *protocol.Snapshot, wanted string) error {
	bad := func(err error) error { return c.lied("its answer to "+verb+" makes no sense", err) }
	name, id := word("snapshot's name", s.Name, true), word("snapshot's id", s.ID, true)
	switch {
	case name != nil:
		return bad(name)
	case id != nil:
		return bad(id)
	case wanted != "" && s.Name != wanted:
		return bad(fmt.Errorf("%s was asked for, and it says %.100q", wanted, s.Name))
	case s.Bytes < 0:
		return bad(fmt.Errorf("it has %d bytes", s.Bytes))
	}
	return nil
}

// Restore makes the sandbox again with the files of a snapshot, and opens it:
// then its keeper ends what costs.
func (b *Backend) Restore(ctx context.Context, s *jobs.EnvSpec, name string, at jobs.SnapshotPlace) error {
	if err := b.recorded(s.Home, name); err != nil {
		return err
	}
	if err := b.able(ctx); err != nil {
		return err
	}
	c, err := b.of(s, at.On)
	if err != nil {
		return err
	}
	release, err := at.Hold()
	if err != nil {
		return err
	}
	err = c.restore(ctx, s, name, at)
	release()
	if err != nil {
		return err
	}
	return at.Open(ctx)
}

func (c *caller) restore(ctx context.Context, s *jobs.EnvSpec, name string, at jobs.SnapshotPlace) error {
	r := asking(protocol.VerbRestore, s, at.Dir, name)
	r.Spec = spec(s)
	var made protocol.Restored
	if err := c.ask(ctx, r, at.Progress, &made); err != nil {
		return err
	}
	if err := word("ref", made.Ref, true); err != nil {
		return c.lied("its answer to restore makes no sense", err)
	}
	for _, n := range lines(made.Notes) {
		at.Progress(n)
	}
	now := time.Now().UTC()
	return (&Made{Version: 1, Ref: made.Ref, Name: r.Name, Opened: now, Made: now}).save(at.Dir)
}

// RemoveSnapshot has a recorded one destroyed.
func (b *Backend) RemoveSnapshot(ctx context.Context, home string, snap jobs.Snapshot, on jobs.Starter) error {
	k, err := readKept(home, b.Word, snap.Name)
	if err != nil {
		return err
	}
	s := &jobs.EnvSpec{ID: k.EnvID, Name: k.Environment, Home: home, Place: jobs.Place{Backend: k.Backend, External: &k.External}}
	c, err := b.of(s, on)
	if err != nil {
		return err
	}
	r := asking(protocol.VerbDestroy, s, "", k.Name)
	// These prove it; the user's name may have changed, and says nothing.
	delete(r.Tags, protocol.TagName)
	delete(r.Tags, protocol.TagUser)
	var none struct{}
	if err := c.ask(ctx, r, nil, &none); err != nil {
		return err
	}
	return k.forget(home)
}
