package jobs

import (
	"fmt"
	"strings"
)

// Need is how a job must have ended for another one that waits for it.
type Need string

// The needs.
const (
	NeedOK    Need = "ok"    // it succeeded
	NeedAny   Need = "any"   // it ended, however
	NeedNotOK Need = "notok" // it ended and did not succeed: it failed, was cancelled, was lost
)

// MostAfter bounds how many jobs one may wait for: their numbers stand in one
// line of its script, and each is read before it begins.
const MostAfter = 500

// After is a job that another one waits for.
type After struct {
	Job  string `json:"job"` // its id
	Need Need   `json:"need"`
}

// String names it for people: "1a2b3c4d (ok)".
func (a After) String() string { return Short(a.Job) + " (" + string(a.Need) + ")" }

// ParseAfter reads words such as "ok:JOB", "any:JOB,notok:JOB" and "JOB", which
// is ok:JOB. The jobs are as they were written, and each stands there once.
func ParseAfter(words []string) ([]After, error) {
	bad := func(word, what string) error {
		return &Error{Kind: KindUsage, Msg: fmt.Sprintf("%q %s", word, what),
			Hint: "name a job, or ok:JOB, any:JOB or notok:JOB; several stand behind commas"}
	}
	var out []After
	needs := map[string]Need{}
	for _, list := range words {
		for word := range strings.SplitSeq(list, ",") {
			need, job, found := strings.Cut(strings.TrimSpace(word), ":")
			if !found {
				need, job = string(NeedOK), need
			}
			a := After{Job: strings.ToLower(job), Need: Need(need)}
			switch {
			case a.Need != NeedOK && a.Need != NeedAny && a.Need != NeedNotOK:
				return nil, bad(word, "does not say ok, any or notok")
			case a.Job == "" || strings.Trim(a.Job, "0123456789abcdef-") != "":
				return nil, bad(word, "names no job")
			}
			if before, twice := needs[a.Job]; twice {
				if before != a.Need {
					return nil, bad(word, "asks for another end of that job than "+string(before)+":"+job)
				}
				continue
			}
			needs[a.Job] = a.Need
			out = append(out, a)
		}
	}
	if len(out) > MostAfter {
		return nil, &Error{Kind: KindUsage, Msg: fmt.Sprintf("it waits for %d jobs, and may wait for %d", len(out), MostAfter),
			Hint: "let a job wait for some of them, and this one for that job"}
	}
	return out, nil
}

// Wait is how things stand with the jobs that one waits for.
type Wait struct {
	// For are those of them that have not ended.
	For []After
	// Never says why it can never begin; "" is that it may. Because is the job
	// that it is for.
	Never, Because string
}

// Over tells whether nothing has to be waited for any more: the job may begin,
// or never will.
func (w Wait) Over() bool { return len(w.For) == 0 || w.Never != "" }

// String says for whom it waits: "1a2b3c4d (ok), 5e6f7081 (any) and 3 more".
func (w Wait) String() string {
	const enough = 3
	var names []string
	for i, a := range w.For {
		if i == enough {
			return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), len(w.For)-enough)
		}
		names = append(names, a.String())
	}
	return strings.Join(names, ", ")
}

// WaitFor says how things stand with these jobs, by their records; of one that
// is not among them the record was removed, which is only done to jobs that
// have ended. It is pure. A job that is to be tried again has not ended.
func WaitFor(list []After, records map[string]*Record) Wait {
	var w Wait
	for _, a := range list {
		r := records[a.Job]
		if r == nil {
			if a.Need != NeedAny && w.Never == "" {
				w.Never, w.Because = "the record of job "+a.String()+", which it waits for, was removed", a.Job
			}
			continue
		}
		state := StateOf(r)
		if !state.Final() {
			w.For = append(w.For, a)
			continue
		}
		if ok := state == StateCompleted; w.Never == "" && (a.Need == NeedOK && !ok || a.Need == NeedNotOK && ok) {
			w.Never, w.Because = "job "+a.String()+", which it waits for, has ended as "+string(state), a.Job
			if why := endOf(r); why != "" {
				w.Never += ": " + why
			}
		}
	}
	return w
}

// endOf is the reason in the last word on a job, as far as there is one.
func endOf(r *Record) string {
	switch a := r.Current(); {
	case a.Exit != nil:
		return a.Exit.Reason
	case a.Verdict != nil:
		return a.Verdict.Reason
	}
	return ""
}
