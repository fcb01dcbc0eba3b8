// Package secrets tells what looks like a password, a token or a key in texts
// that are recorded, such as definitions of images. It finds what is careless,
// not what is hidden.
package secrets

import (
	"fmt"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Name tells whether a variable of this name usually holds a secret.
func Name(n string) bool {
	n = strings.ToUpper(n)
	words := []string{"TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"}
	return strings.HasSuffix(n, "_KEY") || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(n, w) })
}

// Value tells whether a value begins as keys and tokens of well-known services
// do.
func Value(v string) bool {
	prefixes := []string{"sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "AKIA", "-----BEGIN"}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(v, p) })
}

var (
	privateKey = pattern.Lazy(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	token      = pattern.Lazy(`\b(?:gh[opusr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|` +
		`sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_]{16,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|xox[abprs]-[A-Za-z0-9-]{10,}|` +
		`hf_[A-Za-z0-9]{20,}|AIza[0-9A-Za-z_-]{30,}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,})`)
	login    = pattern.Lazy(`[a-z][a-z0-9+.-]*://[^/\s:@$"']*:[^/\s@$"']+@`)
	header   = pattern.Lazy(`(?i)\bauthorization:\s*(?:bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{8,}`)
	netrc    = pattern.Lazy(`(?i)\blogin\s+[^\s$]+\s+password\s+[^\s$]`)
	assigned = pattern.Lazy(`(?:^|[\s;&|("'\[{,-])([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*("[^"]*"|'[^']*'|[^\s;&|)#,\]}\["'][^\s;&|)#,\]}]*)`)
)

// Found is a line that holds what looks like a secret.
type Found struct {
	Line int    // from 1
	What string // never the secret itself
}

// In looks for secrets in a text: private keys, tokens of well-known services,
// passwords in URLs, in headers and of netrc files, and literal values of variables whose names say that they
// are secret. A value that is taken from elsewhere ("$TOKEN", "$(cat file)")
// or names a file is none.
func In(text string) []Found {
	var out []Found
	n := 0
	for line := range strings.Lines(text) {
		n++
		if what := inLine(line); what != "" {
			out = append(out, Found{n, what})
		}
	}
	return out
}

func inLine(line string) string {
	switch {
	case privateKey().MatchString(line):
		return "a private key"
	case token().MatchString(line):
		return "a token of a service"
	case login().MatchString(line):
		return "a password in a URL"
	case header().MatchString(line):
		return "a login in a header"
	case netrc().MatchString(line):
		return "a password of a netrc file"
	}
	for rest := line; ; { // a quoted value may hold more of them
		m := assigned().FindStringSubmatchIndex(rest)
		if m == nil {
			return ""
		}
		name, value := rest[m[2]:m[3]], strings.Trim(rest[m[4]:m[5]], `"'`)
		rest = rest[m[4]:]
		if literal(value) && (Name(name) && !harmless(name, value) || Value(value)) {
			return "a value of " + name
		}
	}
}

// literal tells a value from one that is taken from elsewhere.
func literal(v string) bool {
	return v != "" && !strings.ContainsAny(v[:1], "$`<") && !strings.Contains(v, "$(") && !strings.Contains(v, "${")
}

// fingerprint is how public keys are named: the opposite of a secret.
var fingerprint = pattern.Lazy(`^(?:0x)?[0-9A-Fa-f]{8,40}$`)

// variable is how variables of the environment are called.
var variable = pattern.Lazy(`^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$`)

func harmless(name, value string) bool {
	n := strings.ToUpper(name)
	for _, end := range []string{"_FILE", "_PATH", "_DIR", "_URL", "_NAME"} {
		if strings.HasSuffix(n, end) {
			return true
		}
	}
	if strings.Contains(n, "GPG") || strings.Contains(n, "PGP") {
		return fingerprint().MatchString(value)
	}
	if variable().MatchString(value) && Name(value) {
		return true // the name of the variable that has it
	}
	return strings.HasPrefix(value, "/") || value == "true" || value == "false" || value == "0" || value == "1"
}

// Refuse is the error for a text that is to be recorded and holds a secret, or
// nil. What it holds is not repeated.
func Refuse(file, text, why string) error {
	found := In(text)
	if len(found) == 0 {
		return nil
	}
	more := ""
	if len(found) > 1 {
		more = fmt.Sprintf(" (and %d more)", len(found)-1)
	}
	return &jobs.Error{Kind: jobs.KindUsage,
		Msg:  fmt.Sprintf("%s:%d holds what looks like a secret, %s%s: %s", file, found[0].Line, found[0].What, more, why),
		Hint: "take it out; what is needed at run time comes in by the name of a variable"}
}
