package cli

import (
	"fmt"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"
)

// explained are what is worth saying, as label and value.
func (a *app) explained(x *explainJSON) [][2]string {
	out := append([][2]string{{"in short", x.Summary}, {"job", x.ID}, {"name", x.Name}, {"state", string(x.State)}}, x.refused...)
	add := func(label, format string, args ...any) {
		out = append(out, [2]string{label, fmt.Sprintf(format, args...)})
	}
	given := func(label, value string) {
		if value != "" {
			add(label, "%s", value)
		}
	}
	given("waits for", x.WaitsFor)
	given("reason", x.Reason)
	if !x.Final && x.Waiting != "" {
		given("waits for", x.Waiting)
	}
	if !x.Final && x.Plain != "" {
		add("that is", "it %s", x.Plain)
	}
	given("hint", x.Hint)
	if u := x.Unfollowed; u != nil {
		add("not followed", "%s, %s", u.Reason, u.Time.Format(time.RFC3339))
		given("what to do", u.Hint)
	}
	given("cancelled by", x.CancelBy)
	given("not asked", x.AskError)
	if x.Expected != nil {
		add("expected", "%s", a.ahead(*x.Expected))
	}
	out = append(out, a.sooner(x.Forecasts)...)
	if x.Final {
		if x.Differs {
			add("scheduler", "%s: it %s; the job's own record counts", x.Word, x.Plain)
		} else if x.Word != "" {
			add("scheduler", "%s", x.Word)
		}
	}
	if n := len(x.Attempts); n > 0 && x.Attempts[n-1].Decision == nil || x.Differs {
		for _, e := range x.Evidence {
			add("evidence", "%s", e)
		}
	}
	for _, t := range x.Attempts {
		what := string(t.State)
		if t.Reason != "" {
			what += ": " + t.Reason
		}
		add(fmt.Sprintf("attempt %d", t.Number), "%s", what)
		given("agent session", t.Session)
		d := t.Decision
		if d == nil {
			continue
		}
		class := ""
		if d.Class != "" {
			class = " (" + string(d.Class) + ")"
			if d.Class == jobs.ClassPreempted && d.Word == jobs.WordRequeued { // of a lost node, too
				class = " (requeued)"
			}
		}
		add("then", "%s%s: %s", d.Verb, class, d.Reason)
		for _, e := range d.Evidence {
			add("evidence", "%s", e)
		}
		add("decided by", "%s, %s", d.By, d.Time.Format(time.RFC3339))
	}
	given("network use", x.network)
	given("look at", strings.Join(x.LookAt, ", "))
	for _, o := range x.LeftOut {
		add("left out", "%s", o)
	}
	for _, n := range x.NotHere {
		add("not here", "%s", n)
	}
	if k := x.Kept; k != nil && k.Dir != "" && len(x.NotHere) == 0 {
		add("kept", "the task's files, untrusted; berth collect %s brings them", x.Short)
	}
	if k := x.Kept; k != nil && k.Error != "" {
		add("not kept", "%s: %s", k.Lost(), k.Error)
	}
	for i, n := range x.Next {
		label := "next"
		if i > 0 {
			label = "or"
		}
		does := n.Who + ": " + n.Does
		switch n.Who {
		case engine.ActorNone:
			does = n.Does
		case engine.ActorAnybody:
			does = "any berth command, such as berth status " + x.Short + ": " + n.Does
		}
		if !n.When.IsZero() {
			does += ", " + a.ahead(n.When)
		}
		add(label, "%s", does)
	}
	if i := x.Image; i != nil {
		add("image", "%s", i.Path)
		given("reference", i.Reference)
		given("digest", i.Digest)
		given("sha256", i.Sum)
		if u := i.Used; u != nil {
			add("ran from", "%s", u.Path)
			add("on", "%s", u.Node)
			add("which is", "%s", wayText(u))
			add("because", "%s", u.Why)
			given("not staged", u.Failed)
		}
	}
	if o := x.Overlay; o != nil {
		name := o.Name
		if name == "" {
			name = "thrown away"
		}
		add("overlay", "%s", name)
		driver := o.Driver
		if u := o.Used; u != nil && u.Driver != "" {
			driver = u.Driver
		}
		add("driver", "%s", driver)
		if driver == o.Driver {
			given("because", o.Why)
		}
		if u := o.Used; u != nil && u.Name != "" {
			add("layer", "%s", overlayText(u))
		}
	}
	return append(out, networkRows(x.Network)...)
}

// wayText says what the image was run from is.
func wayText(u *jobs.ImageUse) string {
	var s string
	switch u.Way {
	case jobs.ImageStaged:
		s = "a copy of it on the node's own disk"
	case jobs.ImageUnpacked:
		s = "the image unpacked on the node's own disk"
	default:
		return "the image where it is"
	}
	if u.Reused {
		return s + ", which was there already"
	}
	return s + ", made for this job"
}

// ahead writes a time to come: relative on a terminal, absolute in a pipe.
func (a *app) ahead(t time.Time) string {
	at := t.UTC().Format(time.RFC3339)
	if d := t.Sub(a.now()); a.tty && d > 0 {
		return "in " + ago(d)
	}
	return "at " + at
}

// sooner are the forecasts that say something beside the first, which is of the
// job as it is.
func (a *app) sooner(all []jobs.Forecast) (out [][2]string) {
	for i, f := range all {
		switch {
		case f.Trouble != "":
			out = append(out, [2]string{"tried", f.What + ": it would not start: " + f.Trouble})
		case i == 0:
			out = append(out, [2]string{"tried", f.What + ": it would start " + a.ahead(f.Start)})
		case all[0].Trouble != "" || f.Start.Before(all[0].Start.Add(-time.Second)):
			out = append(out, [2]string{"sooner", f.What + ": " + a.ahead(f.Start)})
		default:
			out = append(out, [2]string{"no sooner", f.What + ": " + a.ahead(f.Start)})
		}
	}
	return out
}

// summary is what there is to know of a job in one sentence, and who acts next.
func (x *explainJSON) summary(node string) string {
	why := x.Reason
	if why != "" {
		why = ": " + why
	}
	after := ""
	if n := len(x.Attempts); n > 1 {
		after = fmt.Sprintf(" after %d attempts", n)
	}
	var said string
	switch {
	case !x.Final && x.WaitsFor != "":
		said = "it waits for " + x.WaitsFor
	case !x.Final && x.Plain != "":
		said = "it " + x.Plain
	case x.State == jobs.StateSubmitting:
		said = "no scheduler has confirmed yet that it has it"
	case x.State == jobs.StatePending:
		said = "it waits in the queue, and the scheduler does not say why"
	case x.State == jobs.StateRunning:
		said = "it runs"
		if node != "" {
			said += " on " + node
		}
	case x.State == jobs.StateCompleted && successText[x.ExitCode] != "" && x.Reason != "":
		said = x.Reason + after
	case x.State == jobs.StateCompleted:
		said = "it succeeded" + after
	case x.State == jobs.StateCancelled:
		said = "it was cancelled"
		if x.CancelBy != "" {
			said += " by " + x.CancelBy
		}
	case x.State == jobs.StateTimeout:
		said = "its time was up" + after
	case x.State == jobs.StateOutOfMemory:
		said = "its memory was not enough" + after
	case x.State == jobs.StateLost:
		said = "it ended without a word" + after + why
	default:
		said = "it failed" + after + why
	}
	if !x.Final && x.Unfollowed != nil {
		said += "; what follows it could not be submitted, see below"
	}
	return said
}
