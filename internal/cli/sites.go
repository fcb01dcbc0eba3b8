package cli

import (
	"berth/engine"
	"berth/jobs"
)

// schedulerName is a job's scheduler, and the host on which it is asked.
func schedulerName(s jobs.Spec) string {
	if s.Login == nil {
		return s.Scheduler
	}
	return s.Scheduler + " on " + s.Login.Host
}

// reached returns a function for a command that waits for a job. It prints that the
// job's cluster does not answer, and that it answers again.
func (a *app) reached() func(engine.View) {
	away := false
	return func(v engine.View) {
		if v.Spec.Login == nil || away == (v.AskError != nil) {
			return
		}
		if away = v.AskError != nil; !away {
			a.say("%s answers again", v.Spec.Login.Host)
			return
		}
		a.say("warning: %v; trying again, the job goes on", v.AskError)
		if h := jobs.HintOf(v.AskError); h != "" {
			a.say("hint: %s", h)
		}
	}
}
