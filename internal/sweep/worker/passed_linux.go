package worker

import (
	"slices"
	"strings"

	"berth/internal/network/credentials"
	"berth/internal/sweep"
	"berth/jobs"
)

// passed are the values of a sweep that are in no record.
type passed struct {
	all  []string
	env  []string // of tasks
	keys []string // of credentials, for the keepers of containers alone
}

// takePassed reads what the workers of a sweep are given. One without a value that tasks
// need runs none.
func takePassed(s *sweep.Sweep) (p passed, err error) {
	if !s.Spec.Passes() {
		return p, nil
	}
	if p.all, err = s.Passed(); err != nil {
		return p, err
	}
	for _, kv := range p.all {
		if _, rest := credentials.Part([]string{kv}); len(rest) > 0 {
			p.env = append(p.env, kv)
		} else {
			p.keys = append(p.keys, kv)
		}
	}
	has := func(all []string, name string) bool {
		return slices.ContainsFunc(all, func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name })
	}
	var missing []string
	for _, name := range s.Spec.EnvNames {
		if !has(p.env, name) {
			missing = append(missing, name)
		}
	}
	if s.Spec.Worker != nil {
		for _, c := range s.Spec.Worker.Credentials {
			if !has(p.keys, credentials.Variable(c.Name)) {
				missing = append(missing, "the key of "+c.Name)
			}
		}
	}
	if len(missing) > 0 {
		return p, &jobs.Error{Kind: jobs.KindConfig, Msg: "what is in no record is not there any more: " + strings.Join(missing, ", "),
			Hint: "berth sweep resume " + jobs.Short(s.Spec.ID) + " takes it from your environment again"}
	}
	return p, nil
}

// forget removes the values that were kept for the workers when no task needs them any more.
// A round that is added just then has them from this worker.
func (w *worker) forget() error {
	if len(w.passed.all) == 0 || w.left() {
		return nil
	}
	err := w.Sweep.DropPassed()
	if err == nil && w.left() {
		err = w.Sweep.RestorePassed(w.passed.all) // the round may have brought others
	}
	return err
}

// left tells whether tasks have no result, or whether that is not known.
func (w *worker) left() bool {
	if _, err := w.Sweep.Reload(); err != nil {
		return true
	}
	f, err := w.Sweep.Fold()
	return err != nil || f.Left() > 0
}
