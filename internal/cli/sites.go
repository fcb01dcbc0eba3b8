package cli

import (
	"sync"

	"berth/backends/all"
	"berth/backends/ssh"
	"berth/engine"
	"berth/internal/remote/replica"
	"berth/internal/workspace"
	"berth/jobs"
)

// sites gives the clusters behind login hosts, each host one.
func (a *app) sites(on jobs.Starter) func(jobs.SSHSpec) (engine.Site, error) {
	var mu sync.Mutex
	known := map[string]engine.Site{}
	return func(login jobs.SSHSpec) (engine.Site, error) {
		mu.Lock()
		defer mu.Unlock()
		key := engine.LoginKey(login)
		if s := known[key]; s != nil {
			return s, nil
		}
		h, err := ssh.Backend{On: on}.Host(login)
		if err != nil {
			return nil, err
		}
		s := replica.New(replica.Config{
			Host: h, Git: workspace.New(on), Terminal: a.errTTY && isTerminal(a.stdin), Progress: a.progress,
			Scheduler: all.LoginScheduler,
		})
		known[key] = s
		return s, nil
	}
}

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
