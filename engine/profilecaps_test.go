package engine

import (
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// Caps of a profile narrow, and widen nothing.
func TestHoldCaps(t *testing.T) {
	b := jobs.Caps{USD: 5, Wall: time.Hour, Turns: 9}
	claude := &jobs.Agent{Name: "claude", Tells: jobs.Tells{Turns: jobs.TellsEach}}
	key := []jobs.Credential{{Name: "anthropic", API: "anthropic"}}
	for name, c := range map[string]struct {
		asked jobs.Caps
		agent *jobs.Agent
		keys  []jobs.Credential
		want  jobs.Caps
		err   string
	}{
		"no agent and no key": {},
		"an agent":            {agent: claude, want: jobs.Caps{Wall: time.Hour, Turns: 9}},
		"a key":               {keys: key, want: jobs.Caps{USD: 5, Wall: time.Hour}},
		"less":                {asked: jobs.Caps{Wall: time.Minute, Turns: 2}, agent: claude, want: jobs.Caps{Wall: time.Minute, Turns: 2}},
		"more":                {asked: jobs.Caps{Wall: 2 * time.Hour}, err: "max_wall 2h0m0s is above the bound 1h0m0s of the profile lake"},
		"more turns":          {asked: jobs.Caps{Turns: 10}, agent: claude, err: "max_turns 10 is above the bound 9 of the profile lake"},
	} {
		p := &jobs.Place{Caps: c.asked, Credentials: c.keys, Profile: jobs.Profile{Name: "lake", Caps: b}}
		err := holdCaps(p, c.agent)
		if c.err != "" {
			if jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || p.Caps.Wall != c.want.Wall || p.Caps.Turns != c.want.Turns || p.Caps.USD != c.want.USD {
			t.Errorf("%s: %+v, %v", name, p.Caps, err)
		}
	}
	got := jobs.Caps{USD: 7, Requests: 3}.Within(jobs.Caps{USD: 5, Tokens: 4})
	if got.USD != 5 || got.Requests != 3 || got.Tokens != 4 {
		t.Errorf("within: %+v", got)
	}
}

// An agent's own sandbox gets the device that it shows inside, where the container lacks it.
func TestOwnSandbox(t *testing.T) {
	on, off := true, false
	for name, c := range map[string]struct {
		backend string
		own     *bool
		mounts  []jobs.Mount
		want    int
	}{
		"on":            {jobs.BackendSingularity, &on, nil, 1},
		"on, and bound": {jobs.BackendSingularity, &on, []jobs.Mount{{Source: "/dev/full", Destination: "/dev/full"}}, 1},
		"off":           {jobs.BackendSingularity, &off, nil, 0},
		"not said":      {jobs.BackendSingularity, nil, nil, 0},
		"docker has it": {jobs.BackendDocker, &on, nil, 0},
		"bwrap has it":  {jobs.BackendBwrap, &on, nil, 0},
	} {
		s := &jobs.Spec{Agent: &jobs.Agent{Name: "codex", OwnSandbox: c.own}, Place: jobs.Place{Backend: c.backend, Mounts: c.mounts}}
		if err := settleAgent(s); err != nil || len(s.Mounts) != c.want {
			t.Errorf("%s: %+v, %v", name, s.Mounts, err)
		}
	}
}
