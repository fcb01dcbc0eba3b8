package runner

import (
	"errors"

	"berth/internal/node/egress"
	"berth/jobs"
	"berth/jobs/store"
)

// takeCredentials takes the keys of credentials out of the passed values.
func (r *attempt) takeCredentials(passed []string) (rest []string, err error) {
	if r.credentials, rest, err = egress.Take(passed, r.spec.Credentials); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameOther, Msg: err.Error(), Hint: "submit the task again: they are read then"}
	}
	return rest, nil
}

// brokered are the credentials whose requests are carried, and the caps; nil is none.
func (r *attempt) brokered() *egress.Brokered {
	if len(r.credentials) == 0 {
		return nil
	}
	return &egress.Brokered{Credentials: r.credentials, Caps: r.spec.Caps, Prices: r.spec.Prices, Met: r.capMet, Before: r.carried.broker,
		Keep: r.keepUsage, Unkept: r.usageUnkept}
}

var errTakenOver = errors.New(takenOver.reason)

// keepUsage records what models were asked for. The next attempt reads it after it was
// decided that there is one: what is written while this attempt stands is read by that
// one, and what comes later is not asked.
func (r *attempt) keepUsage(u jobs.Usage) error {
	if err := store.SetUsage(r.dir, u); err != nil {
		return err
	}
	if !r.stands() {
		return errTakenOver
	}
	return nil
}

// usageUnkept ends an attempt with caps whose requests cannot be recorded: a next one
// would not know of them.
func (r *attempt) usageUnkept(err error) {
	if errors.Is(err, errTakenOver) {
		r.stop.set(takenOver)
		return
	}
	if !r.spec.Caps.Any() {
		r.log.Warn("what models are asked for could not be recorded", "err", err)
		return
	}
	r.stop.set(why{state: jobs.StateError, reason: "requests to models could not be counted durably, so the caps of the job would not hold: " + err.Error(),
		hint: unwrittenHint(r.dir, err)})
}

// capMet ends the job because a cap is met, with its figures: another attempt would meet
// it at once.
func (r *attempt) capMet(figures string) {
	r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassPolicy, code: jobs.CodeCap, reason: figures,
		hint: "raise it in [caps], or with --max-requests, --max-tokens or --max-usd"})
}
