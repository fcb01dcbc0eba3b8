package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/network/credentials"
	"berth/jobs"
)

func TestSettleCredentials(t *testing.T) {
	ready := credentials.Ready()
	prices := jobs.Prices{Models: []jobs.Price{{Model: "claude-*", Input: 1, Output: 1}}}
	spec := func(names ...string) *jobs.Spec {
		s := &jobs.Spec{Place: jobs.Place{Backend: jobs.BackendBwrap, Prices: prices, Network: jobs.Network{Mode: jobs.NetworkAllow}}}
		for _, n := range names {
			s.Credentials = append(s.Credentials, ready[n])
		}
		return s
	}
	for _, v := range []struct {
		names  string
		change func(*jobs.Spec)
		want   string // "" is none
	}{
		{"anthropic github", func(s *jobs.Spec) { s.Caps = jobs.Caps{USD: 5, Models: []string{"claude-*"}} }, ""},
		{"", func(*jobs.Spec) {}, ""},
		{"", func(s *jobs.Spec) { s.Caps.Requests = 1 }, "no credential of the task is for one"},
		{"github", func(s *jobs.Spec) { s.Caps.Tokens = 1 }, "no credential of the task is for one"},
		{"anthropic", func(s *jobs.Spec) { s.Caps.USD, s.Prices = 5, jobs.Prices{} }, "the configuration has no prices"},
		{"anthropic", func(s *jobs.Spec) { s.Caps = jobs.Caps{USD: 5, Models: []string{"gpt-9"}} }, "none for the model gpt-9"},
		{"anthropic", func(s *jobs.Spec) { s.Backend = jobs.BackendBare }, "not available on the backend local"},
		{"anthropic", func(s *jobs.Spec) { s.Resources.Tasks = 2 }, "ntasks"},
		{"anthropic", func(s *jobs.Spec) { s.Network.Mode = jobs.NetworkNone }, `its mode is "none"`},
		{"anthropic", func(s *jobs.Spec) { s.EnvNames = []string{"ANTHROPIC_API_KEY"} }, "the task is given ANTHROPIC_API_KEY"},
		{"openai openai-compatible", func(s *jobs.Spec) { s.Credentials[1].Upstream = "https://a.example" }, "both set OPENAI_API_KEY"},
	} {
		s := spec(strings.Fields(v.names)...)
		v.change(s)
		err := settleCredentials(s)
		if (err == nil) != (v.want == "") || err != nil && (!strings.Contains(err.Error(), v.want) || jobs.HintOf(err) == "") {
			t.Errorf("%s: %v, wanted %s", v.names, err, v.want)
		}
	}
}

// TestCheckLent: an environment has credentials where a keeper holds them, and caps that hold one command are refused.
func TestCheckLent(t *testing.T) {
	ready := credentials.Ready()
	for _, v := range []struct {
		change func(*jobs.EnvSpec)
		want   string
	}{
		{func(*jobs.EnvSpec) {}, ""},
		{func(s *jobs.EnvSpec) { s.Caps.Requests = 9 }, ""},
		{func(s *jobs.EnvSpec) { s.Scheduler = "slurm" }, ""},
		{func(s *jobs.EnvSpec) { s.Caps.Wall = 9 }, "the site sets max_wall"},
		{func(s *jobs.EnvSpec) { s.Forward = []string{"ANTHROPIC_API_KEY"} }, "is given ANTHROPIC_API_KEY"},
		{func(s *jobs.EnvSpec) { s.Env = []string{"ANTHROPIC_BASE_URL=x"} }, "is given ANTHROPIC_BASE_URL"},
		{func(s *jobs.EnvSpec) { s.Backend = jobs.BackendBare }, "not available on the backend local"},
		{func(s *jobs.EnvSpec) { s.Network.Mode = jobs.NetworkNone }, `its mode is "none"`},
	} {
		s := &jobs.EnvSpec{Place: jobs.Place{Backend: jobs.BackendBwrap, Credentials: []jobs.Credential{ready["anthropic"]}}}
		v.change(s)
		err := checkLent(s)
		if err == nil {
			err = settleKeys(&s.Place, s.Forward, nil)
		}
		if (err == nil) != (v.want == "") || err != nil && (!strings.Contains(err.Error(), v.want) || jobs.HintOf(err) == "") {
			t.Errorf("%v, wanted %s", err, v.want)
		}
	}
	s := &jobs.EnvSpec{Place: jobs.Place{Credentials: []jobs.Credential{{Name: "b"}, {Name: "a"}}}}
	if err := sameCredentials(s, []jobs.Credential{{Name: "a"}, {Name: "b"}}); err != nil {
		t.Error(err)
	}
	if err := sameCredentials(s, []jobs.Credential{{Name: "a"}}); err == nil || !strings.Contains(err.Error(), "other credentials: a b, not a") {
		t.Error(err)
	}
}

// TestCredentialKeys: a key is read where the configuration says, and a key that others
// can read, or that is none, is an error without its text.
func TestCredentialKeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for name, mode := range map[string]os.FileMode{"good": 0o600, "open": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("sk-from-a-file\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	e := &Engine{Getenv: func(name string) (string, bool) {
		return map[string]string{"KEY": "sk-from-env", "BAD": "sk-\nsecret-text"}[name], name != "NONE"
	}}
	for from, want := range map[string]string{
		"env:KEY": "sk-from-env", "file:" + dir + "/good": "sk-from-a-file", "file:~/good": "sk-from-a-file", "command:echo sk-was-said; echo more": "sk-was-said",
		"env:NONE": "!it is not set", "env:BAD": "!line breaks", "file:~/open": "!others may read it", "file:~/none": "!no such file", "command:echo sk-secret-text; exit 3": "!it gave none", "": "!does not say where it is",
	} {
		got, err := e.credentialKeys(context.Background(), []jobs.Credential{{Name: "a"}}, []jobs.Credential{{Name: "a", From: from}})
		bad, is := strings.CutPrefix(want, "!")
		switch {
		case is && (err == nil || !strings.Contains(err.Error(), bad) || strings.Contains(err.Error(), "secret-text") || jobs.KindOf(err) != jobs.KindConfig):
			t.Errorf("%s: %v", from, err)
		case !is && (err != nil || len(got) != 1 || got[0] != "BERTH_CREDENTIAL_a="+want):
			t.Errorf("%s: %q %v", from, got, err)
		}
	}
}
