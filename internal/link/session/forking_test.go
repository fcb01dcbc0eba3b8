//go:build linux

package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
)

// TestTerminateWhileItForks ends a command that is about to start processes
// which lose their parents and their environment, beside another command.
func TestTerminateWhileItForks(t *testing.T) {
	p := open(t, session.Options{})
	beside := p.start(in("beside", "sleep 300"), nil, nil)
	<-beside.Begun()
	for name, base := range map[string]session.StartRequest{"session": {Session: "a"}, "plain": {}} {
		word := fmt.Sprintf("forks-%d-%s", os.Getpid(), name)
		for i := range 5 {
			req := base
			req.Command.Shell = "for i in $(seq 100); do (env -i /bin/sh -c 'while :; do /bin/sleep 1; done' " + word + " &) & done; sleep 300"
			proc := p.start(req, nil, nil)
			<-proc.Begun()
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			if err := proc.Terminate(0); err != nil {
				t.Fatal(err)
			}
			if _, err := wait(t, proc); err != nil {
				t.Fatal(err)
			}
			eventually(t, "nothing of it is left", func() bool { return named(word) == 0 })
		}
	}
	if err := beside.Terminate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := wait(t, beside); err != nil {
		t.Error(err)
	}
}

// named counts the processes with a word on their command line.
func named(word string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "\x00"+word+"\x00") {
			n++
		}
	}
	return n
}
