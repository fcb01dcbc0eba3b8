package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

const withKeys = `
[credentials.anthropic]
from = "env:KEY"

[credentials.lab]
like = "openai-compatible"
from = "command:pass lab"
upstream = "https://llm.example.org/v1/"
key_env = "LAB_KEY"

[credentials.github]
from = "file:~/.keys/github"

[prices]
date = "2026-11-26"
"claude-*" = {input = 3, output = 15.5}

[caps]
max_usd = 20
max_requests = 100
`

// TestCredentials: a task has of the configuration what it names, no wider network than
// it asks for, and no higher cap than there is.
func TestCredentials(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, withKeys)
	task := func(names string, caps jobs.Caps) (jobs.Task, error) {
		task := jobs.Task{Place: jobs.Place{Caps: caps}}
		for _, n := range strings.Fields(names) {
			task.Credentials = append(task.Credentials, jobs.Credential{Name: n})
		}
		_, err := w.load(t).Task(&task)
		return task, err
	}
	got, err := task("anthropic lab", jobs.Caps{Requests: 7})
	if err != nil {
		t.Fatal(err)
	}
	a, lab := got.Credentials[0], got.Credentials[1]
	if a.Header != "x-api-key" || a.From != "env:KEY" || a.Upstream != "https://api.anthropic.com" {
		t.Errorf("%+v", a)
	}
	if lab.API != jobs.APIOpenAI || lab.Header != "" || lab.KeyEnv[0] != "LAB_KEY" || lab.BaseURLEnv[0] != "OPENAI_BASE_URL" || lab.From != "command:pass lab" {
		t.Errorf("%+v", lab)
	}
	if got.Caps.Requests != 7 || got.Caps.USD != 20 || got.Prices.Of("claude-x").Output != 15.5 || got.Network.Mode != jobs.NetworkAllow || len(got.Network.Allow) != 0 {
		t.Errorf("%+v %+v %+v", got.Caps, got.Prices, got.Network)
	}
	if got, err := task("github", jobs.Caps{}); err != nil || got.Caps.Any() || got.Prices.Models != nil {
		t.Errorf("of no model: %+v %v", got.Caps, err)
	}
	if got, err := task("", jobs.Caps{}); err != nil || got.Caps.Any() || got.Network.Mode != "" {
		t.Errorf("without one: %+v %+v %v", got.Caps, got.Network, err)
	}
	if _, err := task("anthropic", jobs.Caps{USD: 21}); err == nil || !strings.Contains(err.Error(), "max_usd 21.00 is above the bound 20.00 of "+w.user) {
		t.Error(err)
	}
	if _, err := task("openai", jobs.Caps{}); jobs.KindOf(err) != jobs.KindNotFound || !strings.Contains(jobs.HintOf(err), "[credentials.openai]") {
		t.Error(err)
	}
	// The list that it has then is beside what else is said of the network.
	w.write(t, w.user, withKeys+"[network]\nvia = \"login\"\n")
	w.write(t, w.proj, "[network]\ndeny = [\"x.example\"]\n")
	bounded := jobs.Task{Place: jobs.Place{Credentials: []jobs.Credential{{Name: "anthropic"}}, Network: jobs.Network{Deny: []string{"y.example"},
		Phases: jobs.NetworkPhases{Done: jobs.NetworkPhase{Mode: jobs.NetworkNone}}}}}
	if _, err := w.load(t).Task(&bounded); err != nil {
		t.Fatal(err)
	}
	if n := bounded.Network; n.Mode != jobs.NetworkAllow || n.Via != jobs.ViaLogin || len(n.Deny) != 1 || len(n.Bounds) != 1 || n.Phases.Silent() {
		t.Errorf("%+v", n)
	}
	env := jobs.EnvOptions{Place: jobs.Place{Credentials: []jobs.Credential{{Name: "anthropic"}}}}
	if err := w.load(t).Environment(&env); err != nil {
		t.Fatal(err)
	}
	d, _, err := env.Configured.For(jobs.BackendBwrap)
	if err != nil || d.Network.Mode != jobs.NetworkAllow || len(d.Network.Bounds) != 1 || d.Caps.USD != 20 || env.Caps.USD != 0 || env.Credentials[0].From != "env:KEY" {
		t.Errorf("%+v %+v %v", d.Network, d.Caps, err)
	}
	env.Caps.USD = 21
	if err := w.load(t).Environment(&env); err == nil || !strings.Contains(err.Error(), "max_usd 21.00 is above the bound 20.00 of "+w.user) {
		t.Error(err)
	}
	w.write(t, w.proj, "")
	w.write(t, w.user, withKeys+"[network]\nmode = \"none\"\n")
	if got, err := task("anthropic", jobs.Caps{}); err != nil || got.Network.Mode != jobs.NetworkNone {
		t.Errorf("%+v %v", got.Network, err)
	}
}

func TestCredentialsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[credentials.openai]":                                                       "needs from: where its key is",
		"[credentials.openai]\nfrom = \"sk-123\"":                                    "must begin with env:, file: or command:, and hold no key itself",
		"[credentials.openai]\nfrom = \"file:keys\"":                                 "by its full path",
		"[credentials.openai]\nfrom = \"env:\"":                                      "has nothing behind env:",
		"[credentials.openai]\nkey = \"sk-123\"":                                     `did you mean "from"`,
		"[credentials.openai]\nfrom = \"env:A\"\nupstream = \"http://a.example\"":    "is not https",
		"[credentials.openai-compatible]\nfrom = \"env:A\"":                          "needs upstream",
		"[credentials.mine]\nfrom = \"env:A\"\nupstream = \"https://a.example\"":     "no method is allowed",
		"[credentials.Mine]\nfrom = \"env:A\"\nlike = \"openai\"":                    "is not the name of a credential",
		"[credentials.mine]\nfrom = \"env:A\"\nlike = \"opnai\"":                     `did you mean "openai"`,
		"[credentials.mine]\nfrom = \"env:A\"\nlike = \"openai\"\nheader = \"Host\"": "is not a header that can have a key",
		"credentials = [\"anthropic\"]":                                              "must be a table",
		"[prices]\ndate = \"today\"":                                                 "the day on which you looked",
		"[prices]\n\"m\" = {input = 1, output = 2}":                                  `missing key "date"`,
		"[prices]\ndate = \"2026-11-26\"\n\"m\" = {input = \"1\", output = 2}":       "US dollars for a million tokens",
		"[prices]\ndate = \"2026-11-26\"\nm = {input = 1}":                           `missing key "output"`,
		"[caps]\nmax_usd = 0":                                                        "is not an amount of US dollars",
		"[caps]\nmodels = [\"m\"]":                                                   "unknown key",
	} {
		if _, err := parse("config.toml", []byte(text+"\n"), layerUser); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, wanted %s", text, err, want)
		}
	}
	for _, text := range []string{"[credentials.anthropic]\nfrom = \"env:A\"", "[prices]\ndate = \"2026-11-26\""} {
		if _, err := parse("berth.toml", []byte(text+"\n"), layerProject); err == nil || !strings.Contains(err.Error(), "belongs into your own config.toml") {
			t.Errorf("a project's: %v", err)
		}
	}
	w := newWorld(t)
	w.write(t, w.proj, "[caps]\nmax_usd = 1000\n")
	if _, err := Load(w.src); err == nil || !strings.Contains(err.Error(), "caps.max_usd") {
		t.Error(err)
	}
}

// TestAgentBounds: an agent has what the configuration says of its turns, its time and its
// output, and with its credential a network that reaches nothing else.
func TestAgentBounds(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, "[credentials.anthropic]\nfrom = \"env:KEY\"\n[caps]\nmax_turns = 30\nmax_wall = \"2h\"\nmax_idle = \"20m\"\nmax_output = \"1GiB\"\nmax_requests = 9\n")
	task := func(agent string, caps jobs.Caps, names ...string) (jobs.Task, error) {
		task := jobs.Task{Place: jobs.Place{Caps: caps}}
		if agent != "" {
			task.Agent = &jobs.Agent{Name: agent}
		}
		for _, n := range names {
			task.Credentials = append(task.Credentials, jobs.Credential{Name: n})
		}
		_, err := w.load(t).Task(&task)
		return task, err
	}
	got, err := task("claude", jobs.Caps{Idle: time.Minute}, "anthropic")
	if want := (jobs.Caps{Requests: 9, Turns: 30, Wall: 2 * time.Hour, Idle: time.Minute, Output: jobs.GiB}); err != nil || fmt.Sprintf("%+v", got.Caps) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v %v", got.Caps, err)
	}
	if n := got.Network; n.Mode != jobs.NetworkAllow || n.Allow == nil || len(n.Allow) != 0 || !strings.Contains(strings.Join(got.Command.Argv, " "), "--max-turns 30") {
		t.Errorf("%+v %q", n, got.Command.Argv)
	}
	if got, err = task("mini-swe-agent", jobs.Caps{}); err == nil {
		t.Error("it has no command")
	}
	if got, err = task("copilot", jobs.Caps{}); err != nil || got.Caps.Turns != 30 || got.Caps.Requests != 0 || got.Network.Mode != jobs.NetworkAllow {
		t.Errorf("without a credential: %+v %+v %v", got.Caps, got.Network, err)
	}
	bare := jobs.Task{Agent: &jobs.Agent{Name: "copilot"}, Place: jobs.Place{Backend: jobs.BackendLocal}}
	if _, err := w.load(t).Task(&bare); err != nil || bare.Network.Mode != "" {
		t.Errorf("where no network can be held: %+v %v", bare.Network, err)
	}
	if got, err = task("", jobs.Caps{}); err != nil || got.Caps.Wall != 0 {
		t.Errorf("no agent: %+v %v", got.Caps, err)
	}
	for _, caps := range []jobs.Caps{{Turns: 31}, {Wall: 3 * time.Hour}, {Idle: time.Hour}, {Output: 2 * jobs.GiB}} {
		if _, err := task("claude", caps, "anthropic"); jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(err.Error(), "is above the bound") {
			t.Errorf("%+v: %v", caps, err)
		}
	}
}
