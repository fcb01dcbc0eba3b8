package runner

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"berth/internal/agents"
	"berth/jobs"
	"berth/jobs/store"
)

// sessionBefore is the agent's session with which this attempt goes on, or why it begins
// one though its agent has worked on this task before. Both are "" where it has not.
//
// A session goes on where its files and the work tree do, else its agent would believe
// that it has changed what is not changed.
func (r *attempt) sessionBefore() (id, fresh string) {
	a := r.spec.Agent
	if a == nil || r.rank != nil {
		return "", ""
	}
	from := r.info.Change.Resume
	id = a.Session
	if r.info.Number > 1 {
		rec, err := store.LoadOf(r.dir)
		if err != nil {
			return "", "the earlier attempts could not be read: " + err.Error()
		}
		worked := 0
		for i := range rec.Attempts {
			before := &rec.Attempts[i]
			if before.Claim == nil || before.Info.Number >= r.info.Number || from != nil && before.Info.Number != from.Attempt {
				continue
			}
			if use := r.agentDid(before); use != nil {
				worked = before.Info.Number
				if from != nil {
					id = cmp.Or(use.Session, use.Continued) // it may have been stopped before its first word
				}
			}
		}
		switch {
		case worked == 0:
		case from == nil && id == "":
			return "", fmt.Sprintf("the work of attempt %d is not taken up", worked)
		case id == "":
			return "", fmt.Sprintf("attempt %d has told no id of its session", worked)
		}
	}
	if id == "" {
		return "", ""
	}
	switch {
	case !jobs.IsSession(id):
		return "", fmt.Sprintf("%.100q cannot be the id of a session", id)
	case a.Resume.Empty():
		return "", "the command of " + a.Name + " has no option for a session"
	case !r.spec.Can().Leaves():
		return "", "the backend " + r.spec.Backend + " keeps nothing outside of the workspace"
	case r.spec.Can().Layers && r.spec.Overlay.Name == "" && (from == nil || from.Layer == ""):
		return "", "the layer with its files was not kept"
	}
	return id, ""
}

// agentCommand is what is started: the agent with its earlier session, else the job's
// command. The watch records which.
func (r *attempt) agentCommand(w *watched, prompt []byte) (jobs.Command, []byte) {
	id, fresh := r.sessionBefore()
	if w == nil || w.decoder == nil || id == "" && fresh == "" {
		return r.spec.Command, prompt
	}
	c, ok := r.spec.Agent.ResumeWith(id)
	if !ok {
		w.fresh = fresh
		r.event("new_session", fresh)
		return r.spec.Command, prompt
	}
	w.session = id
	r.event("session", r.spec.Agent.Name+" goes on with "+id)
	if len(prompt) > 0 {
		prompt = slices.Concat([]byte(r.goesOnText()), prompt)
	}
	return c, prompt
}

// goesOnText stands before the prompt of an agent that goes on: it remembers its work, and
// has to know what of that is there.
func (r *attempt) goesOnText() string {
	tree := "What it changed in files is kept as far as the last point that was saved: look at them before you go on."
	if r.info.Change.Resume == nil {
		tree = "This is another try of the same task, and the work tree is as it was when the first one began: what you changed in it is not there."
		if r.spec.Workspace == nil {
			tree = "This is another try of the same task: look at what is there before you go on."
		}
	}
	return "(This session goes on: it had ended before the task was done. " + tree + " The task is:)\n\n"
}

// lost reports whether the agent has ended because its session is not there: it has failed
// before it did anything, and not for a reason that a new session would meet, too. It is
// then started without one, and counts go on.
func (w *watched) lost(x jobs.Exit) bool {
	if w == nil || w.session == "" || x.OK() || x.Signal != 0 || x.Code == 128+int(syscall.SIGTERM) || !x.Started {
		return false
	}
	if w.r.heed(x); w.r.stop.Why() != nil { // an agent may have had the signal before this process
		return false
	}
	w.decoder.Close()
	use := w.meter.Use()
	switch w.r.agentReason(use.Reason, x) {
	case agents.ReasonAuth, agents.ReasonAPI, agents.ReasonTurns, agents.ReasonUSD:
		return false
	}
	if use.Turns > 0 || len(use.Tools) > 0 || use.Usage != nil {
		return false
	}
	d, err := agents.NewDecoder(w.r.spec.Agent.Events, w.event)
	if err != nil {
		return false
	}
	d.Seen = w.decoder.Seen
	w.decoder = d
	w.meter.Again()
	w.fresh = fmt.Sprintf("%s ended with %d before it did anything with its session %s", w.r.spec.Agent.Name, x.Code, w.session)
	w.session = ""
	w.r.event("new_session", w.fresh)
	return true
}
