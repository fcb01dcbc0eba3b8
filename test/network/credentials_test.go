//go:build linux

package network

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/fakes/internet"
)

// configured has credentials of a user's: a vendor's of models by a file, another one by a
// variable, and a server that echoes what it is asked with by a command.
func configured(t *testing.T, owner int) (config, keyFile string) {
	t.Helper()
	config = filepath.Join(top, "home", "keys"+strconv.Itoa(owner))
	dir := filepath.Join(config, "berth")
	must(t, errors.Join(os.MkdirAll(dir, 0o700), os.Chown(config, owner, owner), os.Chown(dir, owner, owner)))
	keyFile = filepath.Join(dir, "key")
	ca := filepath.Join(top, "internet", "ca.pem")
	for path, text := range map[string]string{keyFile: internet.ModelKey + "\n", filepath.Join(dir, "config.toml"): `[credentials.anthropic]
from = "file:` + keyFile + `"
upstream = "https://model.test"
ca = "` + ca + `"

[credentials.openai]
from = "env:TEST_MODEL_KEY"
upstream = "https://model.test/v1"
ca = "` + ca + `"

[credentials.echo]
from = "command:cat ` + keyFile + `"
upstream = "https://api.test"
ca = "` + ca + `"
header = "x-api-key"
base_url_env = "ECHO_URL"
key_env = "ECHO_KEY"
methods = ["GET"]
paths = ["/**"]
`} {
		must(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chown(path, owner, owner)))
	}
	return config, keyFile
}

// asks is what a task asks models for. It prints a line for each, then waits in /sync until it may end.
const asks = `
ask() { curl -sS --max-time 20 -w ' %{http_code}\n' "$@" 2>&1 | tr '\n' ' '; echo; }
message='{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}'
echo 1 $(ask $ANTHROPIC_BASE_URL/v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -d "$message")
echo 2 $(ask $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" -d "$message")
echo 3 $(ask $ANTHROPIC_BASE_URL/v1/messages -H "x-api-key: wrong" -d "$message")
echo 4 $(ask $ANTHROPIC_BASE_URL/v1/files -H "x-api-key: $ANTHROPIC_API_KEY")
echo 5 $(ask $ECHO_URL/v1/x -H "x-api-key: $ECHO_KEY")
echo 6 $(ask https://model.test/v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -d "$message")
`

// canary looks for a key in all that a task can read: its processes, their files, its own files.
const canary = `
for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do tr '\0' '\n' <$f; done >/tmp/all 2>/dev/null
grep -c "$(printf %s%s sk-test- 8f14e45f)" /tmp/all
rm /tmp/all
grep -rlsa --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=lib "$(printf %s%s sk-test- 8f14e45f)" / | head
`

// TestCredentials: a task asks models with keys that it does not have. The key goes to the one server
// in the one header, an answer that echoes it is cut, and no file or process that the task or another user
// can read has it, while the task runs and afterwards.
func TestCredentials(t *testing.T) {
	needNode(t)
	config, keyFile := configured(t, user)
	sync := filepath.Join(top, "home", "sync")
	must(t, errors.Join(os.MkdirAll(sync, 0o700), os.Chown(sync, user, user)))
	at := mark(t)
	ready, left := filepath.Join(sync, "ready"), filepath.Join(sync, "go")
	end := make(chan ran, 1)
	go func() {
		end <- job(t, []string{"XDG_CONFIG_HOME=" + config, "TEST_MODEL_KEY=" + internet.ModelKey, "--credential", "anthropic", "--credential", "openai", "--credential", "echo",
			"--bind", sync + ":/sync:rw"}, "bash", "-c", prelude(false)+asks+"echo canary; "+canary+"touch /sync/ready; until test -e /sync/go; do sleep 0.1; done")
	}()
	var got ran
	for wait := time.After(2 * time.Minute); ; {
		if _, err := os.Stat(ready); err == nil {
			processes(t)
			must(t, os.WriteFile(left, nil, 0o644))
			got = <-end
			break
		}
		select {
		case got = <-end:
			t.Fatalf("it ended: %+v", got)
		case <-wait:
			t.Fatal("it does not come to its end")
		case <-time.After(50 * time.Millisecond):
		}
	}
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for n, want := range []string{"one two three", "one two three", "401", "403", "", "could not resolve"} {
		if n >= len(lines) || !strings.Contains(strings.ToLower(lines[n]), want) || n == 4 && strings.Contains(lines[n], "sk-test") || n == 4 && !strings.HasSuffix(lines[n], " 000") {
			t.Errorf("request %d: %s\n%s", n+1, got.out, got.err)
		}
	}
	if _, found, _ := strings.Cut(got.out, "canary\n"); got.code != 0 || found != "0\n" {
		t.Errorf("exit code %d; the task finds a key: %s", got.code, found)
	}
	for _, e := range arrived(t, at) {
		if e.Kind == "http" && e.Name != "model.test" && e.Name != "api.test" {
			t.Errorf("arrived: %+v", e)
		}
	}
	files(t, keyFile)
	state := run(t, berth(t, "status", "--json"))
	if !strings.Contains(state.out, `"requests": 2`) || strings.Contains(state.out, internet.ModelKey) {
		t.Errorf("%s %s", state.out, state.err)
	}
}

// processes looks at each process of the node but those that the key was given to.
func processes(t *testing.T) {
	t.Helper()
	seen := 0
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if fi, err := os.Stat(dir); err != nil || fi.Sys().(*syscall.Stat_t).Uid != user {
			if exe, err := os.Readlink(filepath.Join(dir, "exe")); err != nil || filepath.Base(exe) != "berth-node" {
				continue // a supervisor's belongs to root, as its memory is its own
			}
		}
		argv, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		seen++
		if bytes.Contains(argv, []byte(internet.ModelKey)) {
			t.Errorf("argv: %q", argv)
		}
		if bytes.Contains(env, []byte(internet.ModelKey)) && !strings.Contains(string(argv), "/bin/berth\x00run") {
			t.Errorf("the environment of %q", argv)
		}
	}
	if seen < 4 {
		t.Errorf("%d processes were looked at", seen)
	}
}

// files looks at each file of the user's.
func files(t *testing.T, but string) {
	t.Helper()
	seen := 0
	for _, dir := range []string{filepath.Join(top, "home"), filepath.Join(top, "tmp")} {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == but {
				return err
			}
			b, err := os.ReadFile(path)
			if seen++; bytes.Contains(b, []byte(internet.ModelKey)) {
				t.Errorf("%s has the key", path)
			}
			return err
		}))
	}
	if seen < 10 {
		t.Errorf("%d files were looked at", seen)
	}
}

// TestCap: a task that has asked for as much as it may ends with 10, and what it did is kept.
func TestCap(t *testing.T) {
	needNode(t)
	config, _ := configured(t, user)
	got := job(t, []string{"XDG_CONFIG_HOME=" + config, "--credential", "anthropic", "--max-requests", "2"}, "bash", "-c", prelude(false)+`
for n in 1 2 3; do
	curl -sS -o /dev/null -w '%{http_code}\n' $ANTHROPIC_BASE_URL/v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m-1","max_tokens":9,"messages":[]}'
done
sleep 60`)
	if got.code != 10 || got.out != "200\n200\n429\n" && got.out != "200\n200\n" || !strings.Contains(got.err, "cap max_requests met: 2 of 2 requests") {
		t.Errorf("%+v", got)
	}
}

// TestEnvironmentCredentials: commands of an environment ask models with a key that they do
// not have, for as long as its keeper lives; the next one has the key from whoever starts it.
func TestEnvironmentCredentials(t *testing.T) {
	needNode(t)
	config, keyFile := configured(t, user)
	with := func(key string, argv ...string) ran {
		t.Helper()
		c := berth(t, argv...)
		c.Env = append(c.Env, "XDG_CONFIG_HOME="+config, key)
		return run(t, c)
	}
	const key = "TEST_MODEL_KEY=" + internet.ModelKey
	defer func() { run(t, berth(t, "env", "rm", "lent")) }()
	exec := []string{"exec", "--env", "lent", "--timeout", "2m"}
	got := with("NONE=1", append(exec, "--backend", "bwrap", "--credential", "openai", "--", "true")...)
	if got.code != 125 || !strings.Contains(got.err, "the key of the credential openai (env TEST_MODEL_KEY): it is not set") {
		t.Errorf("without the key: %+v", got)
	}
	got = with(key, append(exec, "--backend", "bwrap", "--credential", "anthropic", "--credential", "openai", "--credential", "echo", "--", asks+"echo canary; "+canary)...)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for n, want := range []string{"one two three", "one two three", "401", "403", "", "response 403"} {
		if n >= len(lines) || !strings.Contains(strings.ToLower(lines[n]), want) || n == 4 && (strings.Contains(lines[n], "sk-test") || !strings.HasSuffix(lines[n], " 000")) {
			t.Errorf("request %d: %s\n%s", n+1, got.out, got.err)
		}
	}
	if _, found, _ := strings.Cut(got.out, "canary\n"); got.code != 0 && got.code != 1 || found != "0\n" {
		t.Errorf("exit code %d; a command finds a key: %s %s", got.code, found, got.err)
	}
	processes(t)
	files(t, keyFile)
	if got := with("NONE=1", append(exec, "--", "echo", "warm")...); got.out != "warm\n" {
		t.Errorf("while it is warm no key is needed: %+v", got)
	}
	const placeholder = "echo $OPENAI_API_KEY"
	first := with("NONE=1", append(exec, "--", placeholder)...)
	if got := with("NONE=1", "network", "show", "--env", "lent"); !strings.Contains(got.out, "m-1") || strings.Contains(got.out, internet.ModelKey) {
		t.Errorf("%+v", got)
	}
	if got := run(t, berth(t, "env", "stop", "lent")); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := with("NONE=1", append(exec, "--", "true")...); got.code != 125 || !strings.Contains(got.err, "it is not set") {
		t.Errorf("opened again without the key: %+v", got)
	}
	if got := with(key, append(exec, "--", placeholder)...); got.code != 0 || got.out == first.out || !strings.HasPrefix(got.out, "berth-placeholder-") {
		t.Errorf("opened again: %+v, and before %+v", got, first)
	}
	if got := with(key, append(exec, "--credential", "echo", "--", "true")...); got.code != 125 || !strings.Contains(got.err, "was made with other credentials: anthropic echo openai, not echo") {
		t.Errorf("%+v", got)
	}
}

// TestEnvironmentCap: when a cap of the configuration is met, requests of an environment are refused, and it goes on.
func TestEnvironmentCap(t *testing.T) {
	needNode(t)
	config, _ := configured(t, user)
	path := filepath.Join(config, "berth", "config.toml")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(b, "\n[caps]\nmax_requests = 2\n"...), 0o600))
	defer func() { run(t, berth(t, "env", "rm", "capped")) }()
	c := berth(t, "exec", "--env", "capped", "--backend", "bwrap", "--credential", "anthropic", "--", `for n in 1 2 3; do
	curl -sS -o /dev/null -w '%{http_code}\n' $ANTHROPIC_BASE_URL/v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m-1","max_tokens":9,"messages":[]}'
done`)
	c.Env = append(c.Env, "XDG_CONFIG_HOME="+config)
	if got := run(t, c); got.code != 0 || got.out != "200\n200\n429\n" {
		t.Errorf("%+v", got)
	}
	if got := run(t, berth(t, "env", "show", "capped")); !strings.Contains(got.out, "cap max_requests met: 2 of 2 requests") {
		t.Errorf("%+v", got)
	}
}
