//go:build linux

package session_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"berth/internal/link/session"
)

// The scripts of an image run inside as commands do, before the first of them,
// which begins with what they have set.
func TestImageEnvironment(t *testing.T) {
	p := open(t, session.Options{Confine: true, TellEnv: true}, "BEFORE=1")
	marker := t.TempDir() + "/left"
	scripts := []string{
		"export FOO=\"${BEFORE}2\nline\"; hidden=1; return 0; export NEVER=1\n",
		"export PATH=/opt/own:$PATH BASH_ENV=/x BERTH_X=1; grep Seccomp: /proc/self/status >" + marker + "; echo noise; setsid sleep 1000 &\n",
	}
	if err := p.s.Environment(t.Context(), scripts); err != nil {
		t.Fatal(err)
	}
	g := p.s.Guest()
	if !strings.HasPrefix(g.Path, "/opt/own:") || !slices.Contains(g.Env, "FOO=12\nline") {
		t.Errorf("%q %q", g.Path, g.Env)
	}
	for _, name := range []string{"", "default"} {
		req := shell(`echo "$FOO|${PATH%%:*}|${BEFORE}|${hidden-}${NEVER-}${BASH_ENV-}${BERTH_X-}"; pgrep -P 1 -f 'sleep 1000' | wc -l >/dev/null`)
		req.Session = name
		if _, out, errs := p.run(req); out != "12\nline|/opt/own|1|\n" {
			t.Errorf("%q: %q %s", name, out, errs)
		}
	}
	if b, err := os.ReadFile(marker); err != nil || strings.TrimSpace(string(b)) != "Seccomp:\t2" {
		t.Errorf("%q, %v", b, err)
	}
}

// What scripts do wrong leaves the environment as it was.
func TestImageEnvironmentFails(t *testing.T) {
	for name, script := range map[string]string{"exits": "export FOO=1; exit 3\n", "no such command": "set -e; false\n", "writes": "echo x=1 >&3; exit 0\n", "syntax": "if then\n"} {
		t.Run(name, func(t *testing.T) {
			p := open(t, session.Options{})
			if err := p.s.Environment(t.Context(), []string{script}); err == nil {
				t.Error("no error")
			}
			if _, out, _ := p.run(shell(`echo "${FOO-none}"`)); out != "none\n" {
				t.Errorf("%q", out)
			}
		})
	}
}
