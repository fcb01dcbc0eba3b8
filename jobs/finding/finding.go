// Package finding is what a check of "berth doctor" says, so that a room that
// knows the words of one program can look at it: a line with a status, why, and
// what to do, and which versions of a program have known flaws.
package finding

import "strings"

// Status is how a check has ended.
type Status string

// What a check can say.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, but not all of it, or not for ever
	Fail Status = "fail"
	Skip Status = "skip" // it does not apply here
)

// Scope is what a check looks at.
type Scope string

// The scopes, in the order in which findings are shown.
const (
	Scheduler Scope = "scheduler"
	Backend   Scope = "backend"
	Machine   Scope = "machine"
)

// Finding is one line of the report.
type Finding struct {
	ID      string `json:"id"` // of the check
	Scope   Scope  `json:"scope"`
	Subject string `json:"subject"` // what was looked at
	Status  Status `json:"status"`
	Why     string `json:"why"`
	Do      string `json:"do,omitempty"` // what to do, with a command where one fixes it
	// Configured says that berth, as it is configured, needs this: its failure
	// is a failure of the whole.
	Configured bool              `json:"configured,omitempty"`
	Data       map[string]string `json:"data,omitempty"` // for programs; keys are the check's own
}

// One is a list of one finding.
func One(s Status, why, do string) []Finding { return []Finding{{Status: s, Why: why, Do: do}} }

// With adds data, keys and values in turn, to a finding; an empty value is left
// out.
func With(f Finding, data ...string) Finding {
	f.Data = map[string]string{}
	for i := 0; i+1 < len(data); i += 2 {
		if data[i+1] != "" {
			f.Data[data[i]] = data[i+1]
		}
	}
	return f
}

// LastLine returns the last line of what a program has printed.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
