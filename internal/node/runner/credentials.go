package runner

import (
	"berth/internal/node/egress"
	"berth/jobs"
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
	return &egress.Brokered{Credentials: r.credentials, Caps: r.spec.Caps, Prices: r.spec.Prices, Met: r.capMet}
}

// capMet ends the attempt because a cap is met, with its figures.
func (r *attempt) capMet(figures string) {
	r.stop.set(why{state: jobs.StateFailed, class: jobs.ClassTask, code: jobs.CodeCap, reason: figures,
		hint: "raise it in [caps], or with --max-requests, --max-tokens or --max-usd"})
}
