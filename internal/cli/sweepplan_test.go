package cli

import (
	"testing"

	"berth/internal/sweep"
	sweepcommand "berth/internal/sweep/command"
	"berth/jobs"
)

// TestModelsMost: whose requests to models the caps count is what decides how much a sweep may use.
func TestModelsMost(t *testing.T) {
	allow := jobs.Network{Mode: jobs.NetworkAllow}
	keys := []jobs.Credential{{Name: "lab"}}
	for _, c := range []struct {
		own     string
		network jobs.Network
		caps    jobs.Caps
		want    string
	}{
		{sweepcommand.OwnAuto, allow, jobs.Caps{USD: 2}, "2.00 USD at most for each try of a task; 2000.00 USD for all 1000"},
		{sweepcommand.OwnAuto, jobs.Network{}, jobs.Caps{USD: 2}, "2.00 USD at most for each worker, or try of a task where no room can be made; 2000.00 USD for all 1000"},
		{sweepcommand.OwnRoom, jobs.Network{}, jobs.Caps{USD: 2}, "2.00 USD at most for each worker; 8.00 USD for all 4"},
		{sweepcommand.OwnContainer, jobs.Network{}, jobs.Caps{Requests: 1}, "1 request at most for each try of a task; 1000 requests for all 1000"},
		{sweepcommand.OwnNothing, allow, jobs.Caps{Tokens: 5, Requests: 2}, "2 requests, 5 tokens at most for each worker; 8 requests, 20 tokens for all 4"},
		{sweepcommand.OwnRoom, allow, jobs.Caps{}, "no cap: --max-usd sets one for each try of a task"},
	} {
		s := &sweep.Spec{Own: c.own, Worker: &jobs.Place{Network: c.network, Credentials: keys, Caps: c.caps}}
		if got := modelsMost(s, 1000, 4).String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.own, got, c.want)
		}
	}
	if m := modelsMost(&sweep.Spec{Worker: &jobs.Place{}}, 1, 1); m != nil {
		t.Errorf("without a credential: %v", m)
	}
}
