//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// TestScrontab: Slurm itself follows the jobs, where a site has it so, and the
// user's own entries stay.
func TestScrontab(t *testing.T) {
	s := standard
	s.need(t)
	own := `"17 4 1 1 * true # mine"`
	s.ok(t, "printf '%s\\n' "+own+" >~/crontab && scrontab ~/crontab")
	defer s.ok(t, "berth follow --scrontab off; scrontab -r; rm ~/crontab")
	s.ok(t, "berth follow --scrontab on --every 30m && berth follow --scrontab on --every 12h")
	if got := s.ok(t, "scrontab -l"); !strings.Contains(got, "true # mine") || strings.Count(got, " follow --all") != 1 || !strings.Contains(got, "0 */12 * * *") {
		t.Errorf("%s", got)
	}
	if got := s.ok(t, "berth follow --scrontab show"); strings.Count(got, "\n") != 3 {
		t.Errorf("%q", got)
	}
	waitFor(t, patience, func() bool { return s.ok(t, "squeue --me -h -n berth-follow -o %r") == "BeginTime" })
	// What it runs does, and says nothing.
	if got := s.ok(t, "$(berth follow --scrontab show | sed -n 's/^[*0-9/ ]* \\(env .*\\)/\\1/p')"); got != "" {
		t.Errorf("%q", got)
	}
	s.ok(t, "berth follow --scrontab off")
	if got := s.ok(t, "scrontab -l; squeue --me -h -n berth-follow"); strings.Contains(got, "berth") || !strings.Contains(got, "mine") {
		t.Errorf("%s", got)
	}
}
