//go:build conformance

package conformance

import (
	"errors"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// refusedHere tells whether a backend has refused, by its name, what it does not have: a place that
// is destroyed. It must, where nothing is contained.
func (p *place) refusedHere(o jobs.EnvOptions) bool {
	p.t.Helper()
	if !p.v.Spec.Can().Bare {
		return false
	}
	p.absent = true
	_, err := p.e.Environment(p.ctx(), o)
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "on the backend "+backend()) {
		p.t.Errorf("got %s", explain(err))
	}
	return true
}

// destroyed is what the record says of a stopped environment.
func (p *place) destroyed(name string) {
	p.t.Helper()
	v, err := p.e.FindEnvironment(name)
	if err != nil {
		p.t.Fatal(explain(err))
	}
	defer v.Close()
	if login() != nil {
		return // the record is there
	}
	s := v.Show(p.ctx(), true)
	if s.Last == nil || s.Last.Destroyed == nil {
		p.t.Fatalf("it is not recorded that it was looked for: %+v, %v", s.Last, s.Err)
	}
	if d := s.Last.Destroyed; len(d.Left) > 0 || !slices.ContainsFunc(d.Gone, func(s string) bool { return strings.HasPrefix(s, "its scratch directory /") }) {
		p.t.Errorf("got %+v", d)
	}
}

var fateCases = []testCase{
	{"fate", "what is destroyed with its use is looked for", func(p *place) {
		destroy := func(o *jobs.EnvOptions) { o.Destroy = true }
		o := options(p.v.Spec.Name + "-destroy")
		if destroy(&o); p.refusedHere(o) {
			return
		}
		q := p.own("destroy", destroy)
		q.want("echo secret >~/left && mkdir -p ~/deep && chmod 0 ~/deep", 0, "")
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		p.destroyed(q.v.Spec.Name)
		q.want("[ -e ~/left ] || [ -e ~/deep ] || echo none", 0, "none\n")
	}},
	{"fate", "a place for each task", func(p *place) {
		o := options("")
		if o.PerTask, o.Destroy = true, true; p.refusedHere(o) {
			return
		}
		one, err := p.e.Environment(p.ctx(), o)
		if err != nil {
			p.t.Fatal(explain(err))
		}
		p.t.Cleanup(func() { _ = one.Remove(p.ctx(), true) })
		two, err := p.e.Environment(p.ctx(), o)
		if err != nil {
			p.t.Fatal(explain(err))
		}
		p.t.Cleanup(func() { _ = two.Remove(p.ctx(), true) })
		if one.Spec.Name == two.Spec.Name || one.Spec.Name == p.v.Spec.Name {
			p.t.Errorf("they are called %s and %s", one.Spec.Name, two.Spec.Name)
		}
		for _, v := range []*engine.Environment{one, two} {
			s, err := v.Session("")
			if err != nil {
				p.t.Fatal(err)
			}
			q := &place{t: p.t, e: p.e, v: v, s: s}
			q.want("[ -e ~/of-a-task ] || echo none; echo x >~/of-a-task", 0, "none\n")
		}
		d, err := one.Leave(p.ctx())
		if err != nil || d == nil || len(d.Left) > 0 || len(d.Gone) < 2 {
			p.t.Errorf("got %+v, %s", d, explain(err))
		}
		if _, err := p.e.FindEnvironment(one.Spec.Name); jobs.KindOf(err) != jobs.KindNotFound {
			p.t.Errorf("it is recorded still: %v", err)
		}
		if _, err := p.e.FindEnvironment(two.Spec.Name); err != nil {
			p.t.Errorf("the other one's record: %v", err)
		}
		if _, err := two.Leave(p.ctx()); err != nil {
			p.t.Error(explain(err))
		}
	}},
	{"fate", "destroyed after its time, whatever runs", func(p *place) {
		const after = 30 * time.Second
		short := func(o *jobs.EnvOptions) { o.DestroyAfter = after }
		o := options(p.v.Spec.Name + "-after")
		if short(&o); p.refusedHere(o) {
			return
		}
		v, err := p.e.Environment(p.ctx(), o)
		if err != nil {
			p.t.Fatal(explain(err))
		}
		p.t.Cleanup(func() { _ = v.Remove(p.ctx(), true) }) // it is another one by then
		s, err := v.Session("")
		if err != nil {
			p.t.Fatal(err)
		}
		q := &place{t: p.t, e: p.e, v: v, s: s}
		q.want("echo secret >~/left", 0, "")
		q.start("sleep 600")
		id := q.v.Spec.ID
		for end := time.Now().Add(wait); ; time.Sleep(time.Second) {
			if time.Now().After(end) {
				p.t.Fatal("it runs still")
			}
			if _, err := q.v.State(p.ctx()); errors.Is(err, engine.ErrNotRunning) {
				break
			}
		}
		if q.v.Spec.External == nil { // else its service has a timer of its own, and the next who looks removes it
			p.destroyed(q.v.Spec.Name)
		}
		// Whoever looks next has another one.
		r := p.own("after", short)
		if r.v.Spec.ID == id {
			p.t.Error("it is the same one")
		}
		r.want("[ -e ~/left ] || echo none", 0, "none\n")
	}},
	{"fate", "what a job leaves is kept on demand", func(p *place) {
		o := options("")
		t := jobs.Task{Name: "keeps", Command: jobs.Command{Shell: "mkdir -p ~/deep && echo evidence >~/deep/left && exit 3"}, Place: o.Place}
		if t.Scheduler == "" {
			t.Scheduler = jobs.SchedulerLocal
		}
		if t.Can().ImageNames {
			t.Image, t.Reference = "", o.Image
		}
		t.Overlay.Keep = jobs.KeepFailed
		spec, err := p.e.Plan(p.ctx(), t, engine.Choice{}, false)
		if can := jobs.CapabilitiesOf(backend()); !can.Here() {
			p.absent = true
			if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "keep: not available on the backend "+backend()) ||
				!strings.Contains(jobs.HintOf(err), "[results] artifacts") {
				p.t.Errorf("got %s", explain(err))
			}
			return
		}
		if err != nil {
			p.t.Fatal(explain(err))
		}
		rec, err := p.e.Submit(p.ctx(), spec, t)
		if err != nil {
			p.t.Fatal(explain(err))
		}
		v, err := p.e.Wait(p.ctx(), rec.Spec.ID, nil)
		if err != nil {
			p.t.Fatal(explain(err))
		}
		x := v.Current().Exit
		if x == nil || x.Exit.Code != 3 || x.KeptPlace == nil {
			p.t.Fatalf("got %+v", x)
		}
		if !slices.ContainsFunc(x.Notes, func(n string) bool { return n == x.KeptPlace.String() }) {
			p.t.Errorf("no note says so: %q", x.Notes)
		}
		p.kept(x.KeptPlace)
	}},
}

// kept looks into what was kept of a job, and removes it: it is gone then.
func (p *place) kept(k *jobs.KeptPlace) {
	p.t.Helper()
	if login() != nil {
		return // it is kept there
	}
	if k.Overlay != "" {
		set := overlay.Set{Dir: p.e.Store.Overlays(), Templates: p.e.Store.Templates(), On: run.Local{}, Say: func(string, ...any) {}}
		changes, err := set.Diff(p.ctx(), k.Overlay, "")
		if err != nil || !slices.ContainsFunc(changes, func(c overlay.Change) bool { return strings.HasSuffix(c.Path, "/deep/left") }) {
			p.t.Errorf("got %+v, %s", changes, explain(err))
		}
		if err := set.Remove(p.ctx(), k.Overlay, false); err != nil {
			p.t.Error(explain(err))
		}
		return
	}
	v, err := p.e.FindEnvironment(k.Environment)
	if err != nil {
		p.t.Fatal(explain(err))
	}
	s, err := v.Session("")
	if err != nil {
		p.t.Fatal(err)
	}
	q := &place{t: p.t, e: p.e, v: v, s: s}
	q.want("cat ~/deep/left", 0, "evidence\n")
	q.want("grep -c : /proc/net/dev", 0, "1\n") // its loopback is all its network
	d, err := v.Destroy(p.ctx())
	if err != nil || d == nil || len(d.Left) > 0 {
		p.t.Errorf("got %+v, %s", d, explain(err))
	}
	if _, err := p.e.FindEnvironment(k.Environment); jobs.KindOf(err) != jobs.KindNotFound {
		p.t.Errorf("it is recorded still: %v", err)
	}
}
