package cli

import (
	"encoding/json"
	"io"
	"path/filepath"

	"berth/internal/agents"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
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
func (a *app) agentView(spec *jobs.Spec, w io.Writer, how, grep string) io.Writer {
	if w == nil || how == eventsRaw || spec.Agent == nil || spec.Agent.Events == agents.FormatNone {
		return w
	}
	v := &agentWriter{format: spec.Agent.Events, show: func() func(agents.Event) error {
		view := &agents.View{W: w, Colour: a.colours()}
		return view.Event
	}}
	if how == eventsJSON {
		v.show = func() func(agents.Event) error { return a.eventLines(grep) }
	}
	if v.begin() != nil { // a format that a later version has
		return w
	}
	return v
}

// eventLines prints events that have a text in them, as JSON, one on a line.
func (a *app) eventLines(grep string) func(agents.Event) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return func(e agents.Event) error {
		if !e.Has(grep) {
			return nil
		}
		return enc.Encode(e)
	}
}

// transcript prints what was recorded of the agent's events in the last attempt of a job
// that has ended; false is that there is no such record.
func (a *app) transcript(rec *jobs.Record, grep string) (bool, error) {
	at := rec.Current()
	if at == nil || !jobs.StateOf(rec).Final() {
		return false, nil
	}
	f, err := disk.OpenRegular(filepath.Join(at.Dir, store.FileTranscript))
	if err != nil { // one that was ended on another machine, or never began: its output is decoded
		return false, nil //nolint:nilerr // see above
	}
	defer f.Close()
	return true, agents.ReadTranscript(f, a.eventLines(grep))
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
