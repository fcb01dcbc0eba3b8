package join

import (
	"encoding/json"
	"io"

	"berth/jobs"
)

// Prefix begins a line of join's standard error that is a [Report].
const Prefix = "berth-join: "

// Report is what join says before the guest speaks: progress, any number of
// times, then either that it goes on or an error.
type Report struct {
	Version  int          `json:"version"`
	Progress string       `json:"progress,omitempty"`
	Ready    bool         `json:"ready,omitempty"`
	Inside   *jobs.Inside `json:"inside,omitempty"` // with Ready
	Error    string       `json:"error,omitempty"`
	Kind     jobs.Kind    `json:"kind,omitempty"`
	Hint     string       `json:"hint,omitempty"`
}

// Err is the error that a report brings, or nil.
func (r Report) Err() error {
	if r.Error == "" {
		return nil
	}
	return &jobs.Error{Kind: r.Kind, Msg: r.Error, Hint: r.Hint}
}

func failed(err error) Report {
	return Report{Error: err.Error(), Kind: jobs.KindOf(err), Hint: jobs.HintOf(err)}
}

func (r Report) write(w io.Writer) {
	r.Version = 1
	if b, err := json.Marshal(r); err == nil {
		_, _ = w.Write(append(append([]byte(Prefix), b...), '\n'))
	}
}
