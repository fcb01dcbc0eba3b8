package cli

import (
	"encoding/json"
	"io"
	"os"

	"berth/internal/agents"
	"berth/jobs"
)

// How the events of a job's agent are shown.
const (
	eventsShown = "people" // as a person reads them
	eventsJSON  = "json"   // one object for each
	eventsRaw   = "raw"    // as they came
)

// agentWriter shows what a job's agent has written.
type agentWriter struct {
	format string
	show   func() func(agents.Event) error
	d      *agents.Decoder
	err    error
}

// agentView puts the view of an agent's events before a writer of its stdout; a job
// without such an agent has none.
func (a *app) agentView(spec *jobs.Spec, w io.Writer, how string) io.Writer {
	if w == nil || how == eventsRaw || spec.Agent == nil || spec.Agent.Events == agents.FormatNone {
		return w
	}
	v := &agentWriter{format: spec.Agent.Events, show: func() func(agents.Event) error {
		view := &agents.View{W: a.stdout, Colour: a.tty && os.Getenv("NO_COLOR") == ""}
		return view.Event
	}}
	if how == eventsJSON {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		v.show = func() func(agents.Event) error { return func(e agents.Event) error { return enc.Encode(e) } }
	}
	if v.begin() != nil { // a format that a later version has
		return w
	}
	return v
}

func (v *agentWriter) begin() error {
	show := v.show()
	d, err := agents.NewDecoder(v.format, func(e agents.Event) {
		if v.err == nil {
			v.err = show(e)
		}
	})
	v.d = d
	return err
}

// Write takes what the agent has written.
func (v *agentWriter) Write(p []byte) (int, error) {
	n, _ := v.d.Write(p)
	return n, v.err
}

// Reset ends the stream of an attempt: another one begins.
func (v *agentWriter) Reset() error {
	v.d.Close()
	return v.begin()
}
