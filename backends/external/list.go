package external

import (
	"context"
	"path/filepath"
	"strings"

	"berth/backends/external/protocol"
	"berth/jobs"
)

// Remove destroys the environment's sandbox, and what the service keeps of it.
func (b *Backend) Remove(ctx context.Context, s *jobs.EnvSpec, on jobs.Starter) error {
	err := b.Destroy(ctx, s, filepath.Join(s.Home, "envs", s.Name), on)
	if err != nil {
		hint := jobs.HintOf(err) + "; berth env rm --force " + s.Name +
			" forgets it: then berth env gc finds the sandbox, or it ends when its time is up"
		err = &jobs.Error{Kind: jobs.KindOf(err), Msg: "destroy the sandbox of the environment " + s.Name, Err: err,
			Hint: strings.TrimPrefix(hint, "; ")}
	}
	return err
}

// Destroy is Remove for an environment, or an attempt, whose directory is dir.
func (b *Backend) Destroy(ctx context.Context, s *jobs.EnvSpec, dir string, on jobs.Starter) error {
	c, err := b.of(s, on)
	if err != nil {
		return err
	}
	var none struct{}
	return c.ask(ctx, request(protocol.VerbDestroy, s, dir), nil, &none)
}

// List finds the sandboxes of this state directory.
func (b *Backend) List(ctx context.Context, on jobs.Starter) ([]jobs.Found, error) {
	c, owner, err := b.finds(on)
	if err != nil {
		return nil, err
	}
	r := protocol.Request{
		Verb:     protocol.VerbList,
		Options:  b.options(),
		Tags:     map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner},
		Snapshot: snapshotName(owner, ""),
	}
	var l protocol.Listed
	if err := c.ask(ctx, r, nil, &l); err != nil {
		return nil, err
	}
	found, err := c.checkFound(l.Found, r.Tags)
	if err != nil {
		return nil, err
	}
	var out []jobs.Found
	for _, f := range found {
		out = append(out, jobs.Found{
			Backend: b.Word,
			ID:      words(f.Tags[protocol.TagEnv]),
			Name:    words(f.Tags[protocol.TagName]),
			Job:     words(f.Tags[protocol.TagJob]),
			What:    "sandbox",
			Ref:     f.Ref,
			Running: f.Running,
			Created: f.Created,
		})
	}
	lost, err := b.lostSnapshots(c, l.Snapshots, r)
	return append(out, lost...), err
}

// finds is the caller of the installed program, and the owner's name.
func (b *Backend) finds(on jobs.Starter) (*caller, string, error) {
	program, err := Find(b.Word, b.Builtin)
	if program != nil && err != nil {
		return nil, "", err
	}
	if err != nil {
		return nil, "", &jobs.Error{Kind: jobs.KindConfig, Err: err,
			Hint: "install it again; what it has made stands at the service, and ends when its time is up"}
	}
	owner, err := b.owner()
	if err != nil {
		return nil, "", err
	}
	c := b.caller(program)
	c.on = on
	return c, owner, nil
}

func (b *Backend) owner() (string, error) {
	if b.Owner == nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "the backend " + b.Word + " was not told whose sandboxes it is to find"}
	}
	owner, err := b.Owner()
	if err == nil && !tagForm().MatchString(owner) {
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "the name of this state directory at services is damaged"}
	}
	return owner, err
}

// Reap destroys one sandbox that List has found, if it has the same tags still.
func (b *Backend) Reap(ctx context.Context, on jobs.Starter, f jobs.Found) error {
	c, owner, err := b.finds(on)
	if err != nil {
		return err
	}
	if f.What == jobs.WhatSnapshot {
		return b.reapSnapshot(ctx, c, owner, f)
	}
	r := protocol.Request{Verb: protocol.VerbDestroy, Name: sandboxName(f.ID, f.Name), Ref: f.Ref, Options: b.options(),
		Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner, protocol.TagEnv: f.ID}}
	var none struct{}
	return c.ask(ctx, r, nil, &none)
}
