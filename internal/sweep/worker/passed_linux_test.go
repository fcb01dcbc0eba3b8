package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth/internal/network/credentials"
	"berth/internal/sweep"
	"berth/jobs"
)

// Tasks have values that are in no record, and no keys of credentials. They are kept while tasks
// are left; a worker without them claims nothing, and says why.
func TestPassed(t *testing.T) {
	s := made(t, 2, 1, `test "$TOKEN" = "$(printf 'a b\n=c')" && test -z "$BERTH_CREDENTIAL_lab" && echo said >said.{n}`)
	s.Spec.EnvNames = []string{"TOKEN"}
	err := Run(t.Context(), config(t, s))
	if jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" || s.LastTrouble() == "" {
		t.Errorf("without a value: %v, %q", err, s.LastTrouble())
	}
	if all, err := os.ReadDir(s.Claims(1).Dir); err != nil || len(all) > 0 {
		t.Errorf("claims: %v %v", all, err)
	}
	must(t, s.SetPassed([]string{"TOKEN=a b\n=c", credentials.Variable("lab") + "=key"}))
	path := filepath.Join(s.Dir, "passed")
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	must(t, Run(t.Context(), config(t, s)))
	for _, name := range []string{"said.1", "said.2"} {
		if _, err := os.Stat(filepath.Join(s.Spec.Workdir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("they are kept still: %v", err)
	}

	// A worker that begins after that has nothing to do, and nothing to say.
	must(t, Run(t.Context(), config(t, s)))
	if why := s.LastTrouble(); why != "" {
		t.Errorf("after the last result: %s", why)
	}

	// With a task left they stay.
	must(t, s.SetPassed([]string{"TOKEN=x"}))
	_, err = s.AddRound(sweep.Round{Kind: sweep.RoundRetry, Runs: sweep.Numbers{{1, 1}}}, 1, nil)
	must(t, err)
	w := &worker{Config: Config{Sweep: s}, passed: passed{all: []string{"TOKEN=x"}}}
	must(t, w.forget())
	if got, err := s.Passed(); err != nil || !slices.Equal(got, w.passed.all) {
		t.Errorf("%q %v", got, err)
	}
	must(t, s.RestorePassed([]string{"TOKEN=old"})) // what a round has brought is newer
	if got, err := s.Passed(); err != nil || !slices.Equal(got, w.passed.all) {
		t.Errorf("%q %v", got, err)
	}
}

// What is missing is named.
func TestPassedMissing(t *testing.T) {
	s := made(t, 1, 1, "true")
	s.Spec.EnvNames = []string{"A", "B"}
	s.Spec.Worker = &jobs.Place{Credentials: []jobs.Credential{{Name: "lab"}, {Name: "other"}}}
	must(t, s.SetPassed([]string{"AB=1", "B=2", credentials.Variable("lab") + "=key"}))
	const want = "what is in no record is not there any more: A, the key of other"
	p, err := takePassed(s)
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if !slices.Equal(p.env, []string{"AB=1", "B=2"}) || !slices.Equal(p.keys, []string{credentials.Variable("lab") + "=key"}) {
		t.Errorf("%q %q", p.env, p.keys)
	}
}
