package doctor

import (
	"time"

	"berth/jobs"
	"berth/jobs/finding"
)

// Version is the schema version of requests and answers between programs.
const Version = 1

type (
	// Finding is one line of the report.
	Finding = finding.Finding
	// Status is how a check has ended.
	Status = finding.Status
	// Scope is what a check looks at.
	Scope = finding.Scope
)

// How a check ends, and what it looks at.
const (
	OK   = finding.OK
	Warn = finding.Warn
	Fail = finding.Fail
	Skip = finding.Skip

	Scheduler = finding.Scheduler
	Backend   = finding.Backend
	Machine   = finding.Machine
)

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
		do = "fix it; berth config path tells which files are read"
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

// all returns the values of all findings of a check.
func (p *Place) all(id, key string) (out []string) {
	if p == nil {
		return nil
	}
	for _, f := range p.Findings {
		if v := f.Data[key]; f.ID == id && v != "" {
			out = append(out, v)
		}
	}
	return out
}
