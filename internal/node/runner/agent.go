package runner

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/agents"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/node/container"
	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/jobs/store"
)

// capTick is how often clocks are looked at.
const capTick = time.Second

// watched is the task's command as its caps see it: its output, and its agent's events.
type watched struct {
	r       *attempt
	meter   *agents.Meter
	decoder *agents.Decoder // nil where nothing is known of its events
	kept    *agents.Transcript
	waited  bool   // for a job that the task has submitted, when hold looked last
	session string // with which the agent went on; "" is a new one
	fresh   string // why it is a new one though there was one before
}

// watch begins to watch the command, now; nil is that there is nothing to watch.
func (r *attempt) watch() *watched {
	a := r.spec.Agent
	if c := r.spec.Caps; a == nil && c.Turns == 0 && c.Wall == 0 && c.Idle == 0 && c.Output == 0 {
		return nil
	}
	w := &watched{r: r, meter: agents.NewMeter(r.spec.Caps, a, r.spec.Prices, time.Now)}
	w.meter.Carry(r.carried.meter)
	if a == nil || a.Events == agents.FormatNone {
		return w
	}
	var err error
	if w.decoder, err = agents.NewDecoder(a.Events, w.event); err != nil {
		r.note("the events of " + a.Name + " are not read: " + err.Error())
		return w
	}
	if w.kept, err = agents.OpenTranscript(filepath.Join(r.dir, store.FileTranscript)); err != nil {
		r.note("no transcript is kept: " + err.Error())
	}
	return w
}

func (w *watched) event(e agents.Event) {
	e.Time = time.Now().UTC().Truncate(time.Millisecond)
	w.meter.Event(e)
	if w.kept != nil {
		w.kept.Write(e)
	}
	w.check()
}

// check ends the attempt where a cap is met, and the job with it where the cap holds for
// all attempts.
func (w *watched) check() {
	if w.meter.Stop() {
		met := w.meter.Met()
		class := jobs.ClassPolicy
		switch met.Cap {
		case jobs.CapWall, jobs.CapIdle, jobs.CapOutput:
			class = jobs.ClassTask
		}
		w.r.stop.set(why{state: jobs.StateFailed, class: class, code: jobs.CodeCap, reason: met.Reason, hint: "raise it: " + met.Cap + " in [caps]"})
	}
}

// tee is an output of the command that is looked at.
type tee struct {
	to   io.Writer
	seen func(p []byte)
}

func (t tee) Write(p []byte) (int, error) {
	t.seen(p)
	return t.to.Write(p)
}

// outputs puts the watch before the command's outputs.
func (w *watched) outputs(stdout, stderr io.Writer) (io.Writer, io.Writer) {
	if w == nil {
		return stdout, stderr
	}
	return tee{stdout, func(p []byte) {
			w.wrote(len(p))
			if w.decoder != nil {
				_, _ = w.decoder.Write(p)
				if w.kept != nil {
					w.kept.Flush()
				}
			}
		}}, tee{stderr, func(p []byte) {
			w.wrote(len(p))
		}}
}

func (w *watched) wrote(n int) {
	w.meter.Output(n)
	if w.r.spec.Caps.Output > 0 {
		w.check()
	}
}

// hold ends the attempt when a cap is met, until ctx ends.
func (w *watched) hold(ctx context.Context) {
	if w == nil {
		return
	}
	tick := time.NewTicker(capTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e, waiting := w.r.egress.Load(), w.r.asks.waiting()
		if e != nil || waiting > 0 || w.waited {
			w.meter.Broker(e.Told(), e.Busy()+waiting)
			w.waited = waiting > 0
		}
		w.check()
	}
}

// end is what the agent has done, when its command has ended.
func (w *watched) end(x jobs.Exit) *jobs.AgentUse {
	if w == nil || w.decoder == nil {
		return nil
	}
	w.decoder.Close()
	w.meter.Decoded(w.decoder.Seen)
	if w.kept != nil {
		if err := w.kept.Close(); err != nil {
			w.r.note("the transcript is not whole: " + err.Error())
		}
	}
	use := w.meter.Use()
	use.Version = cmp.Or(w.r.agentTold, use.Version)
	use.Continued, use.NewSession = w.session, w.fresh
	if use.Reason = w.r.agentReason(use.Reason, x); use.Reason != "" && !x.OK() {
		w.r.agentEnded(&use)
	}
	return &use
}

// agentReason is why the agent ended, by its exit code before its last words.
func (r *attempt) agentReason(said string, x jobs.Exit) string {
	if x.OK() || x.Signal != 0 {
		return said
	}
	if by := r.spec.Agent.Exit[strconv.Itoa(x.Code)]; by != "" {
		return by
	}
	return said
}

// agentEnded is the attempt's end where the agent says why it has failed.
func (r *attempt) agentEnded(use *jobs.AgentUse) {
	name := r.spec.Agent.Name
	// atCap has the figures, as for a cap that berth has met.
	atCap := func(what, key, most string, set bool) string {
		if set {
			what += " (" + key + " " + most + ")"
		}
		return name + " ended at its own cap of " + what + ": " + use.String()
	}
	w := why{state: jobs.StateFailed, class: jobs.ClassTask, hint: "berth logs " + jobs.Short(r.spec.ID)}
	caps := r.spec.Caps
	switch use.Reason {
	case agents.ReasonTurns: // of the job's caps, which another attempt would meet at once
		w.class, w.code, w.reason = jobs.ClassPolicy, jobs.CodeCap, atCap("turns", jobs.CapTurns, strconv.Itoa(caps.Turns), caps.Turns > 0)
	case agents.ReasonUSD:
		w.class, w.code, w.reason = jobs.ClassPolicy, jobs.CodeCap, atCap("cost", jobs.CapUSD, caps.USD.String(), caps.USD > 0)
	case agents.ReasonAuth:
		w.code, w.reason = jobs.CodeAuth, name+" says that its key was refused"
		if len(r.spec.Credentials) == 0 {
			w.hint = "the task names no credential: berth agent show " + name + " says which one it asks for; " + w.hint
		}
	case agents.ReasonAPI:
		w.code, w.reason = jobs.CodeAgain, name+" says that its model could not be reached"
	case agents.ReasonInput:
		w.reason = name + " did not understand its prompt or its options"
	default:
		return
	}
	r.stop.set(w)
}

// fromEnv is a variable in a file for HOME.
var fromEnv = pattern.Lazy(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)

// furnish writes the files that the agent wants in its HOME, where there are none. One
// with a variable that is not set is not written; without a container HOME is the user's.
// What cannot be written is noted: a named overlay is as tasks have left it.
func (r *attempt) furnish(ctx context.Context, c *container.Container, env []string) {
	if r.spec.Agent == nil || r.spec.Can().Bare {
		return
	}
	s := c.Session()
	for _, path := range slices.Sorted(maps.Keys(r.spec.Agent.Home)) {
		text, ok := filled(fromEnv(), r.spec.Agent.Home[path], env)
		if !ok {
			continue
		}
		path = "~/" + path
		_, err := s.Stat(ctx, "", path)
		if session.FileKind(err) == wire.FileNotFound {
			_, err = s.WriteFile(ctx, "", path, strings.NewReader(text), jobs.WriteOptions{Mode: 0o600, Parents: true})
		}
		if err != nil {
			r.note("the agent's " + path + " was not written: " + err.Error())
		}
	}
}

// filled puts the values of variables into a text; false is that one is not set.
func filled(form *regexp.Regexp, text string, env []string) (string, bool) {
	whole := true
	text = form.ReplaceAllStringFunc(text, func(word string) string {
		name := form.FindStringSubmatch(word)[1]
		for _, kv := range slices.Backward(env) { // the last one counts
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		whole = false
		return ""
	})
	return text, whole
}

// agentText says what became of the agent's own sandbox, and which caps only its own
// events measure.
func agentText(s *jobs.Spec) []string {
	var out []string
	if s.Agent != nil && s.Agent.Sandbox != "" {
		out = append(out, s.Agent.Sandbox)
	}
	if list := s.Caps.ByEvents(s.Credentials); len(list) > 0 {
		out = append(out, fmt.Sprintf("%s: measured by the agent's own events alone, advisory", strings.Join(list, ", ")))
	}
	return out
}
