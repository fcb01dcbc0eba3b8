package ssh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// A program of ssh that does not work is said with what helps.
func TestCheckUnhealthy(t *testing.T) {
	for says, hint := range map[string]string{
		"No user exists for uid 65123": "getent passwd $(id -u)",
		"Bad configuration option: x":  " -V work?",
	} {
		program := filepath.Join(t.TempDir(), "ssh")
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho '"+says+"' >&2\nexit 255\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := (&Backend{Program: program}).Check(t.Context())
		if c.Health != jobs.Unhealthy || !strings.Contains(c.Reason, says) || !strings.Contains(c.Hint, hint) {
			t.Errorf("%+v", c)
		}
	}
}
