//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// TestSchedule: what is due is submitted from a node, by the jobs of scrontab, and by a
// chain of jobs, and nothing of either stays.
func TestSchedule(t *testing.T) {
	s := standard
	s.need(t)
	defer s.ok(t, "berth schedule install --uninstall; berth schedule ls | cut -f1 | xargs -r berth schedule rm")
	runs := func(name string) func() bool {
		return func() bool { return strings.Contains(s.ok(t, "berth schedule runs "+name), "completed") }
	}
	s.ok(t, fmt.Sprintf("berth schedule add --in 1s --name by-scrontab --image %s -- true && berth schedule install --every 1m", s.image))
	waitFor(t, patience, runs("by-scrontab"))
	s.ok(t, "berth schedule install --uninstall")
	if got := s.ok(t, "scrontab -l 2>/dev/null || true"); strings.Contains(got, "schedule tick") {
		t.Errorf("%s", got)
	}
	// Where scrontab fails, as on a site that has it disabled.
	s.ok(t, "mkdir -p ~/no-scrontab && printf '#!/bin/sh\\necho scrontab is disabled >&2\\nexit 1\\n' >~/no-scrontab/scrontab && chmod +x ~/no-scrontab/scrontab")
	defer s.ok(t, "rm -r ~/no-scrontab")
	s.ok(t, fmt.Sprintf("berth schedule add --in 1s --name by-jobs --image %s -- true && PATH=~/no-scrontab:$PATH berth schedule install --every 1m", s.image))
	waitFor(t, patience, runs("by-jobs"))
	if got := s.ok(t, "squeue --me -h -o '%j %r' | grep berth-tick-"); strings.Count(got, "BeginTime") != 1 {
		t.Errorf("%s", got)
	}
	s.ok(t, "berth schedule install --uninstall")
	waitFor(t, patience, func() bool { return s.ok(t, "squeue --me -h -o %j | grep berth-tick- || true") == "" })
}
