package jobs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
)

// What a record says of a network keeps its form: each is read, and written as it was.
// A word alone is how records of before had it.
func TestKeptNetworks(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "kept", "network.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kept []struct{ Old, Now json.RawMessage }
	if err := json.Unmarshal(data, &kept); err != nil || len(kept) < 5 {
		t.Fatalf("%d: %v", len(kept), err)
	}
	for _, k := range kept {
		var n jobs.Network
		if k.Old == nil {
			k.Old = k.Now
		}
		if err := json.Unmarshal(k.Old, &n); err != nil {
			t.Fatalf("%s: %v", k.Old, err)
		}
		got, err := json.Marshal(n.Settled())
		if err != nil {
			t.Fatal(err)
		}
		var wrote, want any
		if json.Unmarshal(got, &wrote) != nil || json.Unmarshal(k.Now, &want) != nil {
			t.Fatalf("%s, %s", got, k.Now)
		}
		if diff := cmp.Diff(want, wrote); diff != "" {
			t.Errorf("%s\n%s", k.Old, diff)
		}
	}
}

// Bounds make a mode narrower and nothing else; what was asked, and by whom it was made
// narrower, is kept.
func TestWithin(t *testing.T) {
	project := func(mode string, allow ...string) jobs.NetworkBound {
		return jobs.NetworkBound{Origin: "project P", Mode: mode, Allow: allow}
	}
	site := jobs.NetworkBound{Origin: "site S", Mode: jobs.NetworkAllow, Allow: []string{"b.example"}}
	for name, c := range map[string]struct {
		n      jobs.Network
		bounds []jobs.NetworkBound
		mode   string
		asked  string
		by     string
	}{
		"nothing":              {n: jobs.Network{Mode: "open"}},
		"open in open":         {bounds: []jobs.NetworkBound{project("open")}},
		"open in a list":       {bounds: []jobs.NetworkBound{project("", "a.example")}, mode: "allow", asked: "open", by: "project P"},
		"open in an empty one": {bounds: []jobs.NetworkBound{{Origin: "project P", Allow: []string{}}}, mode: "allow", asked: "open", by: "project P"},
		"open in two":          {bounds: []jobs.NetworkBound{site, project("none")}, mode: "none", asked: "open", by: "project P"},
		"a list in a list":     {n: jobs.Network{Allow: []string{"c.example"}}, bounds: []jobs.NetworkBound{site}, mode: "allow"},
		"a list in none":       {n: jobs.Network{Allow: []string{}}, bounds: []jobs.NetworkBound{site, project("none")}, mode: "none", asked: "allow", by: "project P"},
		"none in open":         {n: jobs.Network{Mode: "none"}, bounds: []jobs.NetworkBound{project("open"), site}, mode: "none"},
		"learning in none":     {n: jobs.Network{Learn: true, Mode: "open"}, bounds: []jobs.NetworkBound{project("none")}, mode: "none", asked: "allow", by: "project P"},
	} {
		n := c.n
		for _, b := range c.bounds {
			n = n.Within(b)
		}
		for range 2 { // settled once more, it is the same
			n = n.Settled()
			if n.Mode != c.mode || n.Asked != c.asked || n.NarrowedBy() != c.by || len(n.Bounds) != len(c.bounds) || n.Open() != (c.mode == "") {
				t.Errorf("%s: %+v by %q", name, n, n.NarrowedBy())
			}
		}
	}
}

// A list without a meaning is not recorded; what an open network denies is kept for a
// complaint.
func TestSettledLists(t *testing.T) {
	lists := func(mode string) jobs.Network {
		return jobs.Network{Mode: mode, Allow: []string{"a"}, Deny: []string{"b"}, Opaque: []string{"c"}, Transparent: "always", Via: "login",
			MaxUp: 1, MaxDown: 2, MaxTime: 3}
	}
	for _, c := range []struct{ n, want jobs.Network }{
		{lists("open"), jobs.Network{Deny: []string{"b"}}},
		{lists("none"), jobs.Network{Mode: "none"}},
		{lists(""), lists("allow")},
		{jobs.Network{Mode: "allow", Transparent: "auto", Via: "node"}, jobs.Network{Mode: "allow"}},
	} {
		if diff := cmp.Diff(c.want, c.n.Settled()); diff != "" {
			t.Errorf("%+v\n%s", c.n, diff)
		}
	}
}

// A phase has what it says, or what the task has; the task's deny holds in any case.
func TestPhase(t *testing.T) {
	bound := jobs.NetworkBound{Origin: "site S", Mode: "allow", Allow: []string{"s"}}
	n := jobs.Network{Allow: []string{"a"}, Deny: []string{"d"}, Opaque: []string{"a:5"}, Phases: jobs.NetworkPhases{
		Done: jobs.NetworkPhase{Allow: []string{}}, Build: jobs.NetworkPhase{Mode: "open"}, Verify: jobs.NetworkPhase{Deny: []string{"e"}, Opaque: []string{"a:6"}},
	}}.Within(bound)
	task := jobs.Network{Mode: "allow", Allow: []string{"a"}, Deny: []string{"d"}, Opaque: []string{"a:5"}, Bounds: []jobs.NetworkBound{bound}}
	done, build, verify := task, task, task
	done.Allow, done.Opaque = []string{}, nil
	build.Asked, build.Allow, build.Opaque = "open", nil, nil
	verify.Deny, verify.Opaque = []string{"d", "e"}, []string{"a:5", "a:6"}
	for name, want := range map[string]jobs.Network{"": task, "done": done, "build": build, "verify": verify} {
		if diff := cmp.Diff(want, n.Phase(name)); diff != "" {
			t.Errorf("%s\n%s", name, diff)
		}
	}
	var read jobs.Network
	if data, err := json.Marshal(n); err != nil || json.Unmarshal(data, &read) != nil || read.Phase("done").Allow != nil || read.Phase("done").Mode != "allow" {
		t.Errorf("from a record: %+v", read.Phase("done"))
	}
}
