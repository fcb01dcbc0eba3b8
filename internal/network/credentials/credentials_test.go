package credentials

import (
	"slices"
	"strings"
	"testing"

	"berth/jobs"
)

func TestReady(t *testing.T) {
	for name, c := range Ready() {
		if name == "openai-compatible" {
			if part, err := Check(c); part != "upstream" || err == nil {
				t.Errorf("%s is complete: %s %v", name, part, err)
			}
			c.Upstream = "https://llm.example.org/v1"
		}
		if part, err := Check(c); err != nil || c.Name != name {
			t.Errorf("%s: %s: %v", name, part, err)
		}
		if c.API != jobs.APIGit && (len(c.BaseURLEnv) == 0 || len(c.KeyEnv) == 0) {
			t.Errorf("%s: no program finds it", name)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Ready()["anthropic"]
	for _, v := range []struct {
		part   string
		change func(*jobs.Credential)
	}{
		{"name", func(c *jobs.Credential) { c.Name = "A=B" }},
		{"api", func(c *jobs.Credential) { c.API = "mine" }},
		{"header", func(c *jobs.Credential) { c.Header = "Host" }},
		{"header", func(c *jobs.Credential) { c.Header = "x\r\ny" }},
		{"user", func(c *jobs.Credential) { c.User = "me" }},
		{"user", func(c *jobs.Credential) { c.Header, c.User = "", "a:b" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "http://api.anthropic.com" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "https://me@api.anthropic.com" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "https://a.example/x/../y" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "https://a.example?x" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "https://a.example:0" }},
		{"upstream", func(c *jobs.Credential) { c.Upstream = "https:///v1" }},
		{"methods", func(c *jobs.Credential) { c.Methods = []string{"CONNECT"} }},
		{"methods", func(c *jobs.Credential) { c.Methods = nil }},
		{"paths", func(c *jobs.Credential) { c.Paths = []string{"/a/**/b"} }},
		{"paths", func(c *jobs.Credential) { c.Paths = []string{""} }},
		{"base_url_env", func(c *jobs.Credential) { c.BaseURLEnv = []string{"LD_PRELOAD"} }},
		{"key_env", func(c *jobs.Credential) { c.KeyEnv = []string{"PATH"} }},
	} {
		c := good
		v.change(&c)
		if part, err := Check(c); part != v.part || err == nil {
			t.Errorf("%+v: %s, %v; wanted %s", c, part, err, v.part)
		}
	}
}

func TestAllows(t *testing.T) {
	c := jobs.Credential{Methods: []string{"GET"}, Paths: []string{"/a", "/m/*", "/all/**"}}
	for path, want := range map[string]bool{"/a": true, "/a/": false, "/b": false, "/m/x": true, "/m/": false, "/m/x/y": false, "/m": false,
		"/all": true, "/all/": true, "/all/x/y": true, "/allx": false, "": false, "/": false} {
		if Allows(&c, "GET", path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
	if Allows(&c, "POST", "/a") {
		t.Error("another method is allowed")
	}
}

func TestPart(t *testing.T) {
	keys, rest := Part([]string{"A=1", Variable("openai") + "=sk=x", "B=2"})
	if keys["openai"] != "sk=x" || len(keys) != 1 || !slices.Equal(rest, []string{"A=1", "B=2"}) {
		t.Errorf("%v %v", keys, rest)
	}
}

func TestEnv(t *testing.T) {
	ready := Ready()
	got := Env([]Inside{{ready["openai"], 4001, "p"}})
	if !slices.Equal(got, []string{"OPENAI_BASE_URL=http://127.0.0.1:4001/v1", "OPENAI_API_BASE=http://127.0.0.1:4001/v1", "OPENAI_API_KEY=p"}) {
		t.Errorf("%q", got)
	}
	all := strings.Join(Env([]Inside{{ready["github"], 1, "p"}, {ready["gitlab"], 2, "q"}}), "\n")
	for _, want := range []string{"GIT_CONFIG_COUNT=8", "GIT_CONFIG_KEY_0=url.http://127.0.0.1:1/.insteadOf\nGIT_CONFIG_VALUE_0=https://github.com/",
		"GIT_CONFIG_VALUE_5=git@gitlab.com:", "GIT_CONFIG_KEY_7=http.http://127.0.0.1:2/.extraHeader"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}
