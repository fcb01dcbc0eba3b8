package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/backends/local"
	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/store"
)

// keeps is a backend that has left things behind.
type keeps struct {
	local.Backend
	found  []jobs.Found
	onList func()
	onReap func()
	reaped []string
	remove func()
}

func (*keeps) Name() string { return jobs.BackendDocker }

func (k *keeps) List(context.Context, jobs.Starter) ([]jobs.Found, error) {
	if k.onList != nil {
		k.onList()
	}
	return k.found, nil
}

func (k *keeps) Reap(_ context.Context, _ jobs.Starter, f jobs.Found) error {
	k.reaped = append(k.reaped, f.Ref)
	if k.onReap != nil {
		k.onReap()
	}
	return nil
}

func (k *keeps) Remove(context.Context, *jobs.EnvSpec, jobs.Starter) error {
	if k.remove != nil {
		k.remove()
	}
	return nil
}

// recorded makes an environment's record.
func recorded(t *testing.T, e *Engine, name, id string, persistent bool) *Environment {
	t.Helper()
	_, _, err := store.CreateEnv(e.Store.EnvDir(name), jobs.EnvSpec{Version: jobs.EnvVersion, ID: id, Name: name, Home: e.Store.Home(), Persistent: persistent, Place: jobs.Place{Backend: jobs.BackendDocker}})
	must(t, err)
	v, err := e.FindEnvironment(name)
	must(t, err)
	return v
}

// What is removed belongs to no one: no files of an environment that is
// recorded, though its keeper was killed, and nothing of one that is opened, or
// that was made while it was looked for.
func TestCollect(t *testing.T) {
	f := newFixture(t)
	b := &keeps{}
	f.Backends = []jobs.Backend{b}
	home := f.Store.Home()
	recorded(t, f.Engine, "files", "id-files", true)
	recorded(t, f.Engine, "thrown", "id-thrown", false)
	recorded(t, f.Engine, "open", "id-open", false)
	recorded(t, f.Engine, "rests", "id-rests", false)
	release, err := keeper.Hold(f.Store.EnvDir("open"), "id-open")
	must(t, err)
	b.onList = func() { recorded(t, f.Engine, "new", "id-new", true) }
	for id, running := range map[string]bool{"id-files": true, "id-thrown": true, "id-open": true, "id-rests": false, "id-new": true, "id-gone": false} {
		b.found = append(b.found, jobs.Found{ID: id, What: "container", Ref: id, Running: running, Home: home})
	}
	b.found = append(b.found, jobs.Found{ID: "x", Ref: "other-home", Home: "/other"}, jobs.Found{ID: "id-files", What: "directory", Ref: "helpers", Running: true, Home: home})
	found, err := f.Collect(t.Context(), false)
	must(t, err)
	reaped := strings.Join(b.reaped, " ")
	if len(found) != 3 || len(b.reaped) != 3 || !strings.Contains(reaped, "id-thrown") || !strings.Contains(reaped, "id-gone") || !strings.Contains(reaped, "helpers") {
		t.Errorf("%q, %+v", reaped, found)
	}
	release()
	for _, name := range []string{"files", "thrown", "open"} {
		if keeper.Alive(f.Store.EnvDir(name)) {
			t.Errorf("%s is held", name)
		}
	}
}

// A job that keeps its place and ends while something else is removed has it: what it has
// made for that was found when there was no environment yet.
func TestCollectKept(t *testing.T) {
	f := newFixture(t)
	b := &keeps{}
	f.Backends = append(f.Backends, b)
	home := f.Store.Home()
	r := f.submit(task(), Choice{})
	kept := r.Current().Info.ID
	b.onReap = func() {
		recorded(t, f.Engine, "kept-place", kept, true)
		f.end(r, jobs.ExitRecord{State: jobs.StateCompleted})
	}
	b.found = []jobs.Found{
		{ID: "id-gone", What: "container", Ref: "id-gone", Home: home},
		{ID: kept, What: jobs.WhatImage, Ref: "image", Home: home, Job: r.Spec.ID},
	}
	_, err := f.Collect(t.Context(), false)
	must(t, err)
	if got := strings.Join(b.reaped, " "); got != "id-gone" {
		t.Errorf("removed: %s", got)
	}
}

// Of several who remove an environment, each removes the one that was meant,
// and no one opens it meanwhile.
func TestRemoveEnvironment(t *testing.T) {
	f := newFixture(t)
	b := &keeps{}
	f.Backends = []jobs.Backend{b}
	first := recorded(t, f.Engine, "e", "one", true)
	second, err := f.FindEnvironment("e")
	must(t, err)
	b.remove = func() {
		if _, err := keeper.Hold(f.Store.EnvDir("e"), "one"); jobs.KindOf(err) != jobs.KindAgain {
			t.Errorf("it could be opened: %v", err)
		}
	}
	must(t, first.Remove(t.Context(), false))
	b.remove = nil
	recorded(t, f.Engine, "e", "two", true)
	file := filepath.Join(f.Store.EnvDir("e"), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, force := range []bool{false, true} {
		if err := second.Remove(t.Context(), force); jobs.KindOf(err) != jobs.KindAgain {
			t.Errorf("%t: %v", force, err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	third, err := f.FindEnvironment("e")
	must(t, err)
	must(t, third.Remove(t.Context(), false))
	if err := second.Remove(t.Context(), false); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
}
