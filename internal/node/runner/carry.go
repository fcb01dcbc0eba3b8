package runner

import (
	"path/filepath"

	"berth/internal/agents"
	"berth/internal/network/record"
	"berth/jobs"
	"berth/jobs/store"
)

// carried is what the earlier attempts of the job have used of its caps, which are the
// job's and not the attempt's.
type carried struct {
	broker jobs.Usage    // counted by their brokers
	meter  agents.Before // by them or by their agents' events
}

// errUncounted is that caps cannot be held. Each further attempt would meet it, too.
type errUncounted struct{ err *jobs.Error }

func (e errUncounted) Error() string { return e.err.Error() }

func (e errUncounted) Unwrap() error { return e.err }

// carry reads it from the records of these attempts. What a broker has counted and
// cannot be read is an error: caps would not hold.
func (r *attempt) carry() error {
	if r.info.Number < 2 || r.rank != nil || !r.spec.Caps.Any() && r.spec.Caps.Turns == 0 {
		return nil
	}
	rec, err := store.LoadOf(r.dir)
	if err != nil {
		return err
	}
	return r.carryOf(rec.Attempts)
}

func (r *attempt) carryOf(all []jobs.Attempt) error {
	var tells jobs.Tells
	if r.spec.Agent != nil {
		tells = r.spec.Agent.Tells
	}
	for i := range all {
		a := &all[i]
		if a.Info.Number >= r.info.Number || a.Claim == nil {
			continue
		}
		var broker, events jobs.Usage
		switch {
		case a.Exit != nil && a.Exit.Usage != nil:
			broker = *a.Exit.Usage
		case len(r.spec.Credentials) > 0: // it was killed, or asked nothing
			u, err := record.Models(a.Dir)
			if err != nil {
				return errUncounted{&jobs.Error{Kind: jobs.KindInfra, Err: err,
					Msg:  "what an earlier attempt has asked models for is not known, so the caps of the job cannot be held",
					Hint: "submit the task again: it counts from the beginning then"}}
			}
			if u != nil {
				broker = *u
			}
		}
		if use := r.agentDid(a); use != nil {
			r.carried.meter.Turns += use.Turns
			if use.Usage != nil {
				events = *use.Usage
			}
		}
		r.carried.broker.Add(&broker)
		counted := agents.Counted(tells, broker, events)
		r.carried.meter.Usage.Add(&counted)
	}
	return nil
}

// agentDid is what the agent of an earlier attempt has done, by its own events: of one
// that was killed, by its transcript.
func (r *attempt) agentDid(a *jobs.Attempt) *jobs.AgentUse {
	if r.spec.Agent == nil {
		return nil
	}
	if a.Exit != nil && a.Exit.Agent != nil {
		return a.Exit.Agent
	}
	use, err := agents.UseOf(filepath.Join(a.Dir, store.FileTranscript), r.spec.Agent, r.spec.Prices)
	if err != nil {
		r.note("the transcript of an earlier attempt could not be read to its end: " + err.Error())
	}
	return use
}
