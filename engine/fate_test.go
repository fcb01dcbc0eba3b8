package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/backends/bwrap"
	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/store"
)

// What a job has of a place that is its own: no overlay of others, and no attempt that is
// longer than its place may be there.
func TestSettleFate(t *testing.T) {
	for name, c := range map[string]struct {
		place jobs.Place
		retry *jobs.Retry
		want  time.Duration // its time limit
		most  time.Duration // of a further attempt
		err   string
	}{
		"nothing is said":   {place: jobs.Place{Resources: jobs.Resources{Time: time.Hour}}, want: time.Hour},
		"an overlay":        {place: jobs.Place{Fate: jobs.Fate{PerTask: true}, Overlay: jobs.OverlaySpec{Name: "tools"}}, err: "the overlay tools is not of this task alone"},
		"no limit":          {place: jobs.Place{Fate: jobs.Fate{DestroyAfter: time.Minute}}, retry: &jobs.Retry{}, want: time.Minute, most: time.Minute},
		"a longer limit":    {place: jobs.Place{Fate: jobs.Fate{DestroyAfter: time.Minute}, Resources: jobs.Resources{Time: time.Hour}}, want: time.Minute},
		"a shorter limit":   {place: jobs.Place{Fate: jobs.Fate{DestroyAfter: time.Hour}, Resources: jobs.Resources{Time: time.Minute}}, want: time.Minute},
		"a bound of others": {place: jobs.Place{Fate: jobs.Fate{DestroyAfter: time.Hour}}, retry: &jobs.Retry{MaxTime: time.Minute}, want: time.Hour, most: time.Minute},
	} {
		s := &jobs.Spec{Place: c.place, Retry: c.retry}
		err := settleFate(s)
		if c.err != "" {
			if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || s.Resources.Time != c.want || c.retry != nil && s.Retry.MaxTime != c.most {
			t.Errorf("%s: %v, %v, %+v", name, err, s.Resources.Time, s.Retry)
		}
	}
}

// Who looks next removes environments whose time is up, and those of commands whose client
// was killed; what may still be wanted stays.
func TestCollectFates(t *testing.T) {
	f := newFixture(t)
	f.Backends = append(f.Backends, &bwrap.Backend{})
	now := f.Now()
	record := func(name string, age time.Duration, once bool, fate jobs.Fate) {
		s := jobs.EnvSpec{Version: jobs.EnvVersion, ID: name + "-id", Name: name, Home: f.Store.Home(), Created: now.Add(-age), Once: once, Persistent: !fate.Destroy,
			Place: jobs.Place{Backend: jobs.BackendBwrap, Fate: fate}}
		if _, _, err := store.CreateEnv(f.Store.EnvDir(name), s); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(f.Store.EnvDir(name), "home", "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	after, once := jobs.Fate{DestroyAfter: time.Hour}, jobs.Fate{PerTask: true, Destroy: true}
	record("expired", 2*time.Hour, false, after)
	record("young", time.Minute, false, after)
	record("once", time.Hour, true, once)
	record("once-new", time.Minute, true, once)
	record("once-kept", time.Hour, true, jobs.Fate{PerTask: true})
	record("named", 9*time.Hour, false, once)
	for _, dry := range []bool{true, false} {
		found, err := f.collectFates(t.Context(), dry)
		var names []string
		for _, o := range found {
			if names = append(names, o.Name); o.Err != nil {
				t.Errorf("%s: %v", o.Name, o.Err)
			}
		}
		if got := strings.Join(names, " "); err != nil || got != "expired once" {
			t.Errorf("found %q, %v", got, err)
		}
	}
	var left []string
	all, err := f.Environments()
	for _, v := range all {
		left = append(left, v.Spec.Name)
	}
	if got := strings.Join(left, " "); err != nil || got != "named once-kept once-new young" {
		t.Errorf("left %q, %v", got, err)
	}
}

// What cannot be removed is named, with where it is.
func TestDestroyLeaves(t *testing.T) {
	f := newFixture(t)
	f.Backends = append(f.Backends, &bwrap.Backend{})
	s := jobs.EnvSpec{Version: jobs.EnvVersion, ID: "stuck-id", Name: "stuck", Home: f.Store.Home(), Place: jobs.Place{Backend: jobs.BackendBwrap}}
	if err := os.MkdirAll(f.Store.Envs(), 0o700); err != nil {
		t.Fatal(err)
	}
	v := &Environment{e: f.Engine, Spec: s, dir: t.TempDir()} // which is no environment's, so that it stays
	d, err := v.Destroy(t.Context())
	if err == nil || len(d.Left) != 1 || !strings.Contains(d.Left[0], v.dir) || !strings.Contains(err.Error(), v.dir) {
		t.Errorf("got %+v, %v", d, err)
	}
}

// Nothing is removed beneath a process that has the environment.
func TestDestroyHeld(t *testing.T) {
	f := newFixture(t)
	f.Backends = append(f.Backends, &bwrap.Backend{})
	s := jobs.EnvSpec{Version: jobs.EnvVersion, ID: "held-id", Name: "held", Home: f.Store.Home(), Created: f.Now().Add(-time.Hour), Persistent: true,
		Place: jobs.Place{Backend: jobs.BackendBwrap, Fate: jobs.Fate{DestroyAfter: time.Minute}}}
	dir := f.Store.EnvDir(s.Name)
	if _, _, err := store.CreateEnv(dir, s); err != nil {
		t.Fatal(err)
	}
	release, err := keeper.Hold(dir, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if gone, _, err := f.expired(t.Context(), &s); gone || err == nil {
		t.Errorf("%v, %v", gone, err)
	}
	if _, err := store.LoadEnv(dir); err != nil {
		t.Errorf("its record is gone: %v", err)
	}
	release()
	if gone, left, err := f.expired(t.Context(), &s); !gone || left != "" || err != nil {
		t.Errorf("%v, %v", gone, err)
	}
	if gone, left, err := f.expired(t.Context(), &s); !gone || left != "" || err != nil { // another client has removed it
		t.Errorf("%v, %v", gone, err)
	}
}

// An environment without a name is its asker's alone where each task has one.
func TestPerTask(t *testing.T) {
	by := &jobs.EnvConfig{Backend: "docker", PerTask: func(backend string) bool { return backend == "docker" }}
	for name, c := range map[string]struct {
		o    jobs.EnvOptions
		want bool
	}{
		"nothing":             {jobs.EnvOptions{}, false},
		"the flag":            {jobs.EnvOptions{Place: jobs.Place{Fate: jobs.Fate{PerTask: true}}}, true},
		"a name":              {jobs.EnvOptions{Name: "a", Place: jobs.Place{Fate: jobs.Fate{PerTask: true}}}, false},
		"the configuration":   {jobs.EnvOptions{Configured: by}, true},
		"of another backend":  {jobs.EnvOptions{Configured: by, Place: jobs.Place{Backend: "bwrap"}}, false},
		"its word for no one": {jobs.EnvOptions{Configured: &jobs.EnvConfig{}}, false},
	} {
		if got := PerTask(c.o); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	one, err := ownName()
	two, err2 := ownName()
	if err != nil || err2 != nil || one == two || store.CheckEnvName(one) != nil {
		t.Errorf("got %s, %s, %v, %v", one, two, err, err2)
	}
}
