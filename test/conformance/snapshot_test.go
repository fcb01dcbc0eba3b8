//go:build conformance

package conformance

import (
	"context"
	"strings"

	"berth/engine"
	"berth/jobs"
)

var snapshotCases = []testCase{
	{"snapshots", "files are again as they were", func(p *place) {
		q, ok := p.snapshot("again")
		if !ok {
			return
		}
		q.want("cat ~/f; echo second >~/f; echo more >~/g; rm -r ~/d", 0, "first\n")
		if err := q.v.Restore(p.ctx(), "again"); err != nil {
			p.t.Fatal(explain(err))
		}
		q.want("cat ~/f ~/d/e; [ -x ~/d/e ] && readlink ~/l; ls ~/g 2>/dev/null || echo no g", 0, "first\ndeep\nf\nno g\n")
		// It is there for the next time.
		q.want("rm ~/f", 0, "")
		if err := q.v.Restore(p.ctx(), "again"); err != nil {
			p.t.Fatal(explain(err))
		}
		q.want("cat ~/f", 0, "first\n")
	}},
	{"snapshots", "one in use is not restored", func(p *place) {
		q, ok := p.snapshot("busy")
		if !ok {
			return
		}
		q.start("sleep 300")
		q.want("echo second >~/f", 0, "")
		if err := q.v.Restore(p.ctx(), "busy"); jobs.KindOf(err) != jobs.KindAgain || jobs.HintOf(err) == "" {
			p.t.Errorf("got %v", explain(err))
		}
		q.want("cat ~/f", 0, "second\n")
	}},
	{"snapshots", "an environment begins with one", func(p *place) {
		q, ok := p.snapshot("first")
		if !ok {
			return
		}
		q.want("echo second >~/f", 0, "")
		o := options(p.v.Spec.Name + "-begun")
		o.External = &jobs.ExternalSpec{From: "first"}
		if v, err := p.e.Environment(p.ctx(), o); jobs.KindOf(err) == jobs.KindConfig || jobs.KindOf(err) == jobs.KindUsage {
			if !strings.Contains(err.Error(), "a snapshot to begin with") {
				p.t.Errorf("what there is not is not named: %s", explain(err))
			}
			p.absent = true
			return
		} else if err == nil {
			v.Close()
		}
		r := p.own("begun", func(o *jobs.EnvOptions) { o.External = &jobs.ExternalSpec{From: "first"} })
		r.want("cat ~/f ~/d/e; echo third >~/f", 0, "first\ndeep\n")
		q.want("cat ~/f", 0, "second\n")
		// That one is gone does not matter to the other, nor to the snapshot.
		if err := r.v.Remove(p.ctx(), false); err != nil {
			p.t.Fatal(explain(err))
		}
		s := p.own("begun", func(o *jobs.EnvOptions) { o.External = &jobs.ExternalSpec{From: "first"} })
		s.want("cat ~/f", 0, "first\n")
	}},
	{"snapshots", "names, and what is removed", func(p *place) {
		q, ok := p.snapshot("named")
		if !ok {
			return
		}
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		for _, n := range []string{"named", "Named", "../named", "", "-n", strings.Repeat("n", 50)} {
			if _, err := q.v.Snapshot(p.ctx(), n); jobs.KindOf(err) != jobs.KindUsage || jobs.HintOf(err) == "" {
				p.t.Errorf("%q: %s", n, explain(err))
			}
		}
		list, err := p.e.Snapshots(&q.v.Spec)
		if err != nil || len(list) != 1 || list[0].Name != "named" || list[0].Environment != q.v.Spec.Name || list[0].Backend != q.v.Spec.Backend || list[0].Unclear || list[0].Created.IsZero() {
			p.t.Fatalf("%+v, %v", list, err)
		}
		if found, err := p.e.Collect(p.ctx(), true); err != nil || len(found) > 0 {
			p.t.Errorf("gc would take it: %+v, %v", found, err)
		}
		if err := p.e.RemoveSnapshot(p.ctx(), list[0]); err != nil {
			p.t.Fatal(explain(err))
		}
		if list, err := p.e.Snapshots(&q.v.Spec); err != nil || len(list) != 0 {
			p.t.Errorf("it is there still: %+v, %v", list, err)
		}
		if err := q.v.Restore(p.ctx(), "named"); jobs.KindOf(err) != jobs.KindNotFound || jobs.HintOf(err) == "" {
			p.t.Errorf("got %s", explain(err))
		}
		q.want("cat ~/f", 0, "first\n") // that was no reason to lose what it has
		// Its name is free again.
		if err := q.v.Stop(p.ctx()); err != nil {
			p.t.Fatal(explain(err))
		}
		if _, err := q.v.Snapshot(p.ctx(), "named"); err != nil {
			p.t.Error(explain(err))
		}
	}},
}

// snapshot makes an environment with some files, and a snapshot of it. Where
// there are none, the error has to name that; then it is false.
func (p *place) snapshot(name string) (*place, bool) {
	p.t.Helper()
	q := p.own("snap-"+name, nil)
	home := "~"
	if b := backend(); b == jobs.BackendLocal || b == jobs.BackendSSH { // HOME is this user's own
		home += "/" + unique("snap-"+name)
		p.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			_, _ = q.s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: "rm -rf " + home}})
		})
	}
	q.want("mkdir -p "+home+" && cd "+home+" && mkdir d && echo first >f && echo deep >d/e && chmod 0700 d/e && ln -s f l && cd", 0, "")
	if err := q.v.Stop(p.ctx()); err != nil {
		p.t.Fatal(explain(err))
	}
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		list, err := p.e.Snapshots(&q.v.Spec)
		if err != nil {
			p.t.Error(explain(err))
		}
		for _, s := range list {
			if err := p.e.RemoveSnapshot(ctx, s); err != nil {
				p.t.Error(explain(err))
			}
		}
	})
	_, err := q.v.Snapshot(p.ctx(), name)
	if err == nil {
		return q, true
	}
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "snapshots") || !strings.Contains(jobs.HintOf(err), "berth cp ") {
		p.t.Fatal(explain(err))
	}
	if err := q.v.Restore(p.ctx(), name); jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" {
		p.t.Errorf("restore: %s", explain(err))
	}
	if list, err := p.e.Snapshots(&q.v.Spec); err != nil || len(list) != 0 {
		p.t.Errorf("%+v, %v", list, err)
	}
	q.want("cat "+home+"/f", 0, "first\n")
	p.absent = true
	return nil, false
}
