package cli

import (
	"fmt"
	"testing"
	"time"

	"berth/jobs/store"
)

// A passing line goes before anything else is written, by berth or by the job.
func TestPassing(t *testing.T) {
	a, out, errs := onTerminal(true)
	stdout, _ := a.shown(false)
	a.overwrite("copying")
	a.say("running")
	_, _ = fmt.Fprint(stdout, "one\n")
	a.overwrite("cloning")
	_, _ = fmt.Fprint(stdout, "two\n")
	a.say("done")
	if got, want := errs.String(), "\r\x1b[Kberth: copying\r\x1b[Kberth: running\n\r\x1b[Kberth: cloning\r\x1b[Kberth: done\n"; got != want {
		t.Errorf("on the terminal %q, want %q", got, want)
	}
	if out.String() != "one\ntwo\n" {
		t.Errorf("the output is %q", out)
	}
}

// What a place is made ready with is told after a second.
func TestPreparing(t *testing.T) {
	for _, c := range []struct {
		event, text string
		age         time.Duration
		want        string
	}{
		{store.EventPreparing, "copying x: 3MiB of 1GiB", time.Second, "copying x: 3MiB of 1GiB"},
		{store.EventPreparing, "copying x", 999 * time.Millisecond, ""},
		{store.EventCloning, "/repo: Receiving objects: 45%", time.Minute, "cloning /repo: Receiving objects: 45%"},
		{store.EventWaiting, "for overlay", time.Minute, ""},
		{"started", "", time.Minute, ""},
		{"", "", time.Minute, ""},
	} {
		if got := preparing(store.Event{Event: c.event, Text: c.text, Time: noon.Add(-c.age)}, noon); got != c.want {
			t.Errorf("%s %q of %s ago: %q, want %q", c.event, c.text, c.age, got, c.want)
		}
	}
}
