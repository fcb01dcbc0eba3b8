package secrets_test

import (
	"strings"
	"testing"

	"berth/internal/config/secrets"
	"berth/jobs"
)

func TestIn(t *testing.T) {
	token := "ghp_" + strings.Repeat("a1", 18)
	for line, want := range map[string]string{
		"export API_TOKEN=abc123":                               "a value of API_TOKEN",
		`  DB_PASSWORD="hunter2" ./run`:                         "a value of DB_PASSWORD",
		"password = 'x y'":                                      "a value of password",
		`env = ["AWS_SECRET_ACCESS_KEY=abc"]`:                   "a value of AWS_SECRET_ACCESS_KEY",
		"curl -H 'Authorization: Bearer " + token + "'":         "a token of a service",
		"echo sk-" + strings.Repeat("x", 24):                    "a token of a service",
		"AKIAIOSFODNN7EXAMPLE":                                  "a token of a service",
		"-----BEGIN OPENSSH PRIVATE KEY-----":                   "a private key",
		"-----BEGIN PRIVATE KEY-----":                           "a private key",
		"git clone https://me:pass@example.org/x":               "a password in a URL",
		`bootstrap = "export A_TOKEN=b"`:                        "a value of A_TOKEN",
		"X=sk-short":                                            "a value of X",
		"curl -H \"Authorization: Basic dXNlcjpodW50ZXIy\"":     "a login in a header",
		"curl -H 'authorization: token 0123456789abcdef'":       "a login in a header",
		"echo machine h login ada password hunter2 >~/.netrc":   "a password of a netrc file",
		"curl -H \"Authorization: Bearer $TOKEN\"":              "",
		"echo \"machine h login ada password $PASS\" >~/.netrc": "",
		"# the Authorization: header is set by the caller":      "",
		"export API_TOKEN=$TOKEN":                               "",
		"export API_TOKEN=\"$(cat /run/token)\"":                "",
		"API_KEY_FILE=/run/key":                                 "",
		"TOKENIZER=/usr/lib/x":                                  "",
		"GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D":      "",
		"-----BEGIN CERTIFICATE-----":                           "",
		"pip install scikit-learn sk-learn":                     "",
		"apt-get install -y gh jq":                              "",
		`if [ "$a" == "b" ]; then PATH=/x:$PATH; fi`:            "",
		"git clone https://example.org/x":                       "",
		"git clone https://$USER:$TOKEN@example.org/x":          "",
		"curl https://example.org/a@b":                          "",
		`env = ["GITHUB_TOKEN", "OPENAI_API_KEY"]`:              "",
		"export API_TOKEN=":                                     "",
		`env_key = "OPENAI_API_KEY"`:                            "",
	} {
		got := ""
		if found := secrets.In("x\n" + line + "\n"); len(found) > 0 {
			got = found[0].What
			if found[0].Line != 2 {
				t.Errorf("%q: line %d", line, found[0].Line)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestRefuse(t *testing.T) {
	if err := secrets.Refuse("f", "true\n", "x"); err != nil {
		t.Error(err)
	}
	err := secrets.Refuse("f.def", "true\nMY_TOKEN=hunter2\nA_SECRET=y\n", "it is recorded")
	if jobs.CodeOf(err) != jobs.CodeUsage || !strings.HasPrefix(err.Error(), "f.def:2 ") || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "1 more") {
		t.Error(err)
	}
}
