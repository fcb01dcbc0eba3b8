// Package credentials has what a task's credentials are, without what speaks HTTP: the
// ready-made ones, what they have to be, the variables inside, and how their keys
// travel. Package broker, which is linked into no client, uses them.
package credentials

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Date is when the ready-made ones were last compared with the vendors' pages.
const Date = "2026-11-26"

var get = []string{"GET", "HEAD"}

// Ready returns those that need a key alone, by their names. One of them, of what is
// compatible with OpenAI's, needs an upstream, too.
func Ready() map[string]jobs.Credential {
	open := jobs.Credential{API: jobs.APIOpenAI, Methods: []string{"GET", "HEAD", "POST"},
		Paths: []string{"/chat/completions", "/responses", "/responses/compact", "/responses/input_tokens", "/completions",
			"/embeddings", "/models", "/models/**"},
		BaseURLEnv: []string{"OPENAI_BASE_URL", "OPENAI_API_BASE"}, KeyEnv: []string{"OPENAI_API_KEY"}}
	git := jobs.Credential{API: jobs.APIGit, Methods: []string{"GET", "POST"}, Paths: []string{"/**"}}
	list := []jobs.Credential{
		{Name: "anthropic", API: jobs.APIAnthropic, Upstream: "https://api.anthropic.com", Header: "x-api-key",
			Methods:    []string{"GET", "HEAD", "POST"},
			Paths:      []string{"/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/*"},
			BaseURLEnv: []string{"ANTHROPIC_BASE_URL"}, KeyEnv: []string{"ANTHROPIC_API_KEY"}},
		with(open, "openai", "https://api.openai.com/v1"),
		with(open, "openai-compatible", ""),
		{Name: "gemini", API: jobs.APIGemini, Upstream: "https://generativelanguage.googleapis.com", Header: "x-goog-api-key",
			Methods:    []string{"GET", "HEAD", "POST"},
			Paths:      []string{"/v1/models", "/v1/models/*", "/v1beta/models", "/v1beta/models/*"},
			BaseURLEnv: []string{"GOOGLE_GEMINI_BASE_URL"}, KeyEnv: []string{"GEMINI_API_KEY"}},
		with(open, "openrouter", "https://openrouter.ai/api/v1"),
		{Name: "huggingface", Upstream: "https://huggingface.co", Methods: get, Paths: []string{"/**"},
			BaseURLEnv: []string{"HF_ENDPOINT"}, KeyEnv: []string{"HF_TOKEN"}},
		with(git, "github", "https://github.com"),
		with(git, "gitlab", "https://gitlab.com"),
	}
	out := map[string]jobs.Credential{}
	for _, c := range list {
		switch c.Name {
		case "openrouter":
			c.BaseURLEnv, c.KeyEnv = []string{"OPENROUTER_BASE_URL"}, []string{"OPENROUTER_API_KEY"}
		case "github":
			c.User = "x-access-token"
		case "gitlab":
			c.User = "oauth2"
		}
		out[c.Name] = c
	}
	return out
}

func with(c jobs.Credential, name, upstream string) jobs.Credential {
	c.Name, c.Upstream = name, upstream
	return c
}

var (
	nameForm   = pattern.Lazy(`^[a-z0-9][a-z0-9-]{0,39}$`)
	headerForm = pattern.Lazy(`^[A-Za-z0-9-]{1,64}$`)
	envForm    = pattern.Lazy(`^[A-Z_][A-Z0-9_]{0,63}$`)
	pathForm   = pattern.Lazy(`^(/([A-Za-z0-9._~:@-]+|\*))*(/\*\*)?$`)
	methods    = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
)

// own are headers that no key goes into, as requests and connections have them.
var own = []string{"host", "connection", "content-length", "content-type", "transfer-encoding", "upgrade", "te", "trailer", "expect", "cookie",
	"accept", "accept-encoding", "proxy-authorization", "proxy-connection", "user-agent", "range"}

// Check says what is wrong with one: which of its parts, and why.
func Check(c jobs.Credential) (part string, err error) {
	switch {
	case !nameForm().MatchString(c.Name):
		return "name", fmt.Errorf("%q is not the name of a credential: lower-case letters, digits and dashes, at most 40", c.Name)
	case c.API != "" && !slices.Contains(jobs.APIs, c.API):
		return "api", fmt.Errorf("%q is none of %s", c.API, strings.Join(jobs.APIs, ", "))
	case c.Header != "" && (!headerForm().MatchString(c.Header) || slices.Contains(own, strings.ToLower(c.Header))):
		return "header", fmt.Errorf("%q is not a header that can have a key", c.Header)
	case c.Header != "" && c.User != "":
		return "user", fmt.Errorf("a user goes with a password, and not with the header %s", c.Header)
	case strings.ContainsFunc(c.User, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }):
		return "user", fmt.Errorf("%q has other characters than a user's name", c.User)
	case len(c.Methods) == 0:
		return "methods", fmt.Errorf("no method is allowed: name some of %s", strings.Join(methods, ", "))
	case len(c.Paths) == 0:
		return "paths", fmt.Errorf(`no path is allowed: name some below %s, such as "/models/*", or "/**" for all`, c.Upstream)
	}
	if _, err := Upstream(c); err != nil {
		return "upstream", err
	}
	for _, m := range c.Methods {
		if !slices.Contains(methods, m) {
			return "methods", fmt.Errorf("%q is none of %s", m, strings.Join(methods, ", "))
		}
	}
	for _, p := range c.Paths {
		if p == "" || !pathForm().MatchString(p) {
			return "paths", fmt.Errorf(`%q is no path: each part is plain or "*", and "/**" may be at its end`, p)
		}
	}
	for part, list := range map[string][]string{"base_url_env": c.BaseURLEnv, "key_env": c.KeyEnv} {
		for _, name := range list {
			if !envForm().MatchString(name) || slices.ContainsFunc([]string{"BERTH_", "LD_"},
				func(p string) bool { return strings.HasPrefix(name, p) }) || name == "PATH" {
				return part, fmt.Errorf("%q is not a variable for that", name)
			}
		}
	}
	return "", nil
}

// Upstream reads the address of a credential's server.
func Upstream(c jobs.Credential) (*url.URL, error) {
	u, err := url.Parse(c.Upstream)
	switch {
	case c.Upstream == "":
		return nil, fmt.Errorf(`an address is needed, such as "https://llm.example.org/v1"`)
	case err != nil || u.Hostname() == "" || u.Opaque != "" || strings.ContainsAny(c.Upstream, "%\\ \t"):
		return nil, fmt.Errorf("%q is not an address such as https://llm.example.org/v1", c.Upstream)
	case u.Scheme != "https":
		return nil, fmt.Errorf("%q is not https: the key would go over the network in the open", c.Upstream)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("%q has more than a host and a path", c.Upstream)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%q has no port", c.Upstream)
		}
	}
	if u.Path = strings.TrimSuffix(u.Path, "/"); !pathForm().MatchString(u.Path) || strings.Contains(u.Path, "*") || !Plain(u.Path) {
		return nil, fmt.Errorf("%q has a path with other characters than letters, digits and . _ ~ : @ -", c.Upstream)
	}
	return u, nil
}

// Plain reports whether no part of a path leads elsewhere.
func Plain(path string) bool {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if part == "." || part == ".." || part == "" && i > 0 && i < len(parts)-1 {
			return false
		}
	}
	return true
}

// Allows reports whether a method and a path below the upstream are allowed.
func Allows(c *jobs.Credential, method, path string) bool {
	return slices.Contains(c.Methods, method) && slices.ContainsFunc(c.Paths, func(p string) bool { return matches(p, path) })
}

func matches(pattern, path string) bool {
	begin, rest := strings.CutSuffix(pattern, "/**")
	want, have := strings.Split(begin, "/"), strings.Split(path, "/")
	if len(have) < len(want) || !rest && len(have) > len(want) {
		return false
	}
	for i, w := range want {
		if w != have[i] && (w != "*" || have[i] == "") {
			return false
		}
	}
	return true
}

// variable is what the name of a passed value begins with that is a key: no task can
// have a variable of this name.
const variable = "BERTH_CREDENTIAL_"

// Variable is the name under which a credential's key travels with the passed values.
func Variable(name string) string { return variable + name }

// Variables are those of a list.
func Variables(list []jobs.Credential) (out []string) {
	for _, c := range list {
		out = append(out, Variable(c.Name))
	}
	return out
}

// Part takes the keys out of the passed values: rest is what may go on to the task, or
// to a backend's program.
func Part(passed []string) (keys map[string]string, rest []string) {
	keys = map[string]string{}
	for _, kv := range passed {
		if name, ok := strings.CutPrefix(kv, variable); ok {
			name, key, _ := strings.Cut(name, "=")
			keys[name] = key
			continue
		}
		rest = append(rest, kv)
	}
	return keys, rest
}

// CheckKey says what no server takes for a key.
func CheckKey(key string) error {
	switch {
	case len(key) < 8:
		return fmt.Errorf("it has less than 8 characters")
	case len(key) > 8<<10:
		return fmt.Errorf("it has more than 8 KiB")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("it has blanks, line breaks or other characters that no header takes")
	}
	return nil
}

// Inside is a credential as a task has it.
type Inside struct {
	jobs.Credential
	Port        int // on loopback, behind which the broker is
	Placeholder string
}

// Env are the variables of credentials for commands inside, NAME=VALUE. What git reads has
// to be counted over all of them.
func Env(list []Inside) (out []string) {
	var git [][2]string
	for _, c := range list {
		u, err := Upstream(c.Credential)
		if err != nil {
			continue // Check has refused it
		}
		here := "http://127.0.0.1:" + strconv.Itoa(c.Port)
		for _, name := range c.BaseURLEnv {
			out = append(out, name+"="+here+u.Path)
		}
		for _, name := range c.KeyEnv {
			out = append(out, name+"="+c.Placeholder)
		}
		if c.API == jobs.APIGit {
			login := base64.StdEncoding.EncodeToString([]byte(c.User + ":" + c.Placeholder))
			git = append(git,
				[2]string{"url." + here + u.Path + "/.insteadOf", u.String() + "/"},
				[2]string{"url." + here + u.Path + "/.insteadOf", "git@" + u.Hostname() + ":"},
				[2]string{"url." + here + u.Path + "/.insteadOf", "ssh://git@" + u.Hostname() + "/"},
				[2]string{"http." + here + "/.extraHeader", "Authorization: Basic " + login})
		}
	}
	for i, kv := range git {
		n := strconv.Itoa(i)
		out = append(out, "GIT_CONFIG_KEY_"+n+"="+kv[0], "GIT_CONFIG_VALUE_"+n+"="+kv[1])
	}
	if len(git) > 0 {
		out = append(out, "GIT_CONFIG_COUNT="+strconv.Itoa(len(git)))
	}
	return out
}

// Placeholder makes what stands for a key inside: it is worth nothing elsewhere, and
// its broker ends with the attempt.
func Placeholder() string { return "berth-placeholder-" + rand.Text() }

// Use is a request as it is recorded: nothing of what was said.
type Use struct {
	Time       time.Time  `json:"time"`
	Credential string     `json:"credential"`
	Method     string     `json:"method"`
	Model      string     `json:"model,omitempty"`
	Status     int        `json:"status,omitempty"` // of the answer; 0 is that there was none
	Reason     string     `json:"reason,omitempty"` // why it was refused, or its answer cut
	Usage      jobs.Usage `json:"usage,omitzero"`   // of a request to a model
	Seconds    float64    `json:"seconds"`
}
