package engine

import (
	"strings"
	"testing"

	"berth/jobs"
)

// TestFarAfter: behind a login host a job waits for others of the same ledger
// there, in its scheduler and in its record, and for no others.
func TestFarAfter(t *testing.T) {
	c := newFollowed(t)
	parent := c.submit(c.away(task(again)), Choice{})
	c.host.Calls()
	child := c.submit(c.away(afterTask("ok:"+jobs.Short(parent.Spec.ID))), Choice{})
	l := attemptsOf(c.far.Launches())
	if h := l[1].Behind; len(l) != 2 || len(h) != 1 || h[0].NativeID != parent.Current().Submitted.Handle.NativeID {
		t.Fatalf("%+v", l)
	}
	if far := c.there(child).Spec; len(far.After) != 1 || far.After[0].Job != parent.Spec.ID || far.Retry == nil {
		t.Errorf("its record there: %+v", far)
	}
	if v := c.see(child); v.Waits.String() != jobs.Short(parent.Spec.ID)+" (ok)" {
		t.Errorf("it waits for %q", v.Waits.String())
	}
	c.Node = func() (string, error) { return "/bin/berth-node", nil }
	near := c.submit(at(task(), jobs.Place{Scheduler: jobs.SchedulerLocal}), Choice{})
	for words, place := range map[string]jobs.Place{near.Spec.ID: {Login: login}, parent.Spec.ID: {Scheduler: jobs.SchedulerLocal}} {
		if _, err := c.Plan(t.Context(), at(afterTask(words), place), Choice{}, false); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "behind the login host") || jobs.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
	}
	// The parent fails for good, and the child never begins: that is said there.
	c.endsAs(parent, jobs.ExitRecord{State: jobs.StateFailed, Code: 1, Class: jobs.ClassTask, Exit: jobs.Exit{Started: true, Code: 1}}, true)
	c.see(parent)
	must(t, c.host.Follow(child.Spec.LoginHome, []string{child.Spec.ID}))
	v := c.see(child)
	if far := c.there(child); !v.State.Final() || jobs.StateOf(far) != v.State || far.Current().Verdict == nil {
		t.Errorf("%s here, %+v there", v.State, far.Current())
	}
	if _, err := c.Plan(t.Context(), c.away(afterTask(parent.Spec.ID)), Choice{}, false); err == nil || !strings.Contains(err.Error(), "has ended as failed") {
		t.Errorf("%v", err)
	}
}

// TestFarGuarded: what looks after a job takes one execution there more.
func TestFarGuarded(t *testing.T) {
	c := newFollowed(t)
	r := c.submit(c.away(task(again)), Choice{})
	if got := c.host.Calls(); got != "survey put round" {
		t.Errorf("a submission asks: %s", got)
	}
	if r.Current().Reaper == nil || c.there(r).Current().Reaper == nil {
		t.Errorf("%+v", r.Current())
	}
}
