//go:build linux

package network

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVerify: berth review run has the network of [network.verify] for the done commands, and what they
// reach is recorded under that phase. The job itself had none.
func TestVerify(t *testing.T) {
	needNode(t)
	repo := filepath.Join(top, "home", "verify")
	must(t, errors.Join(os.MkdirAll(repo, 0o700), os.WriteFile(filepath.Join(repo, "task.md"), []byte(`+++
name = "verified"
done = ["curl -sSf --max-time 20 http://allowed.test/ || echo not reached", "curl -sSf --max-time 20 http://refused.test/ || echo not reached"]
[workspace]
repo = "."
[agent]
command = "echo x >x.txt"
[network]
mode = "none"
[network.verify]
allow = ["allowed.test"]
+++
Write x.txt.
`), 0o600), os.Chown(repo, user, user), os.Chown(filepath.Join(repo, "task.md"), user, user)))
	in := func(argv ...string) ran {
		t.Helper()
		c := command(t, argv...)
		c.Dir = repo
		c.Env = append(c.Env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		return run(t, c)
	}
	program := filepath.Join(top, "bin", "berth")
	if got := in("sh", "-c", "git init -q && git add . && git commit -qm begin"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	got := in(program, "run", "--scheduler", "local", "--backend", "bwrap", "task.md")
	id := regexp.MustCompile(`job ([0-9a-f]{8})`).FindStringSubmatch(got.err)
	if got.code != 0 || id == nil {
		t.Fatalf("%+v", got)
	}
	if got := in(program, "logs", "--done", id[1]); strings.Count(got.out, "not reached") != 2 {
		t.Errorf("the job's own checks have no network: %+v", got)
	}
	got = in(program, "review", "run", id[1])
	child := regexp.MustCompile(`job ([0-9a-f]{8}) runs its done commands`).FindStringSubmatch(got.err)
	if got.code != 0 || child == nil {
		t.Fatalf("%+v", got)
	}
	if got := in(program, "logs", "--done", child[1]); !strings.Contains(got.out, "hello from allowed.test") || strings.Count(got.out, "not reached") != 1 {
		t.Errorf("%+v", got)
	}
	got = in(program, "network", "show", child[1])
	for _, want := range []string{`(?m)^\S+\s+verify\s+allow\s+allowed\.test`, `(?m)\s+verify\s+deny\s+refused\.test`} {
		if !regexp.MustCompile(want).MatchString(got.out) {
			t.Errorf("%s: %+v", want, got)
		}
	}
}
