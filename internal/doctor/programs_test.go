package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/run"
)

// A program that is installed and does not work is a failure only where it is
// configured; one that works says what it reaches.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, line := range map[string]string{
		"good": `{"ok":{"version":"2","service":"a cloud","region":"eu","level":"vm","quotas":[{"name":"vCPU","used":4,"limit":10}]}}`,
		"sick": `{"error":{"kind":"auth","message":"no key","hint":"get one"}}`,
	} {
		script := filepath.Join(dir, "berth-backend-"+name)
		if err := os.WriteFile(script, []byte("#!/bin/sh\necho '"+line+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	find := func(backend, name string) Finding {
		t.Helper()
		l := &look{Where: Where{Backend: backend, On: run.Local{}, Builtin: map[string][]string{"inside": {filepath.Join(dir, "berth-backend-good")}}}.withDefaults()}
		for _, f := range checkPrograms(context.Background(), l) {
			if f.Subject == subjectOf(name) {
				return f
			}
		}
		return Finding{}
	}
	for _, c := range []struct {
		backend, name string
		status        Status
		said          string
	}{
		{"", "good", OK, "2 a cloud, eu, containment: vm; vCPU: 4 of 10"},
		{"", "sick", Skip, "no key"},
		{"sick", "sick", Fail, "no key"},
		{"nowhere", "nowhere", Fail, "there is no program berth-backend-nowhere"},
		{"inside", "inside", OK, "a cloud"},
	} {
		if f := find(c.backend, c.name); f.Status != c.status || !strings.Contains(f.Why, c.said) || c.status == Fail && f.Do == "" {
			t.Errorf("%q configured, %s: %+v", c.backend, c.name, f)
		}
	}
}
