package doctor

import (
	"time"

	"berth/jobs"
)

// Version is the schema version of requests and answers between programs.
const Version = 1

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
	Do      string `json:"do,omitempty"` // what to do, with a command where one mends it
	// Configured says that berth, as it is configured, needs this: its failure
	// is a failure of the whole.
	Configured bool              `json:"configured,omitempty"`
	Data       map[string]string `json:"data,omitempty"` // for programs; keys are the check's own
}

// Place is what was found on one machine.
type Place struct {
	Version  int       `json:"version"`
	Where    string    `json:"where"` // "here", "node", "login"
	Host     string    `json:"host"`
	Time     time.Time `json:"time"`
	TookMS   int64     `json:"took_ms"`
	Findings []Finding `json:"findings"`
}

// OK tells whether nothing that is configured has failed.
func (p *Place) OK() bool {
	for _, f := range p.Findings {
		if f.Status == Fail && f.Configured {
			return false
		}
	}
	return true
}

// Find returns the first finding of a check, or one with an empty status.
func (p *Place) Find(id string) Finding {
	if p != nil {
		for _, f := range p.Findings {
			if f.ID == id {
				return f
			}
		}
	}
	return Finding{ID: id}
}

// Broken is the finding for what is configured and cannot be read.
func Broken(subject string, err error) Finding {
	do := jobs.HintOf(err)
	if do == "" {
		do = "mend it; berth config path tells which files are read"
	}
	return Finding{ID: IDConfiguration, Scope: Machine, Subject: subject, Status: Fail, Configured: true, Why: oneLine(err.Error()), Do: do}
}

// data returns a value of a check's findings, or "".
func (p *Place) data(id, key string) string {
	if p == nil {
		return ""
	}
	for _, f := range p.Findings {
		if v := f.Data[key]; f.ID == id && v != "" {
			return v
		}
	}
	return ""
}
