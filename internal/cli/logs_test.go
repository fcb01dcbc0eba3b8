package cli

import (
	"strings"
	"testing"

	"berth/internal/config"
)

func TestHome(t *testing.T) {
	t.Setenv("BERTH_HOME", "/b")
	t.Setenv("XDG_STATE_HOME", "/x")
	t.Setenv("HOME", "/home/alice")
	for _, c := range []struct{ unset, want string }{{"", "/b"}, {"BERTH_HOME", "/x/berth"}, {"XDG_STATE_HOME", "/home/alice/.local/state/berth"}} {
		if c.unset != "" {
			t.Setenv(c.unset, "")
		}
		if got, err := config.Home(); err != nil || got != c.want {
			t.Errorf("without %s: %q, %v; want %q", c.unset, got, err, c.want)
		}
	}
	t.Setenv("XDG_STATE_HOME", "relative") // the XDG specification has it ignored
	if got, _ := config.Home(); got != "/home/alice/.local/state/berth" {
		t.Errorf("got %q", got)
	}
	t.Setenv("HOME", "")
	if _, err := config.Home(); err == nil {
		t.Error("no HOME is no error")
	}
	t.Setenv("BERTH_PROFILE_PATH", "")
	if got := config.ProfileDirs(); len(got) != 1 || got[0] != "/etc/berth/profiles" {
		t.Errorf("profiles are looked for in %q", got)
	}
	t.Setenv("HOME", "/home/alice")
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("BERTH_PROFILE_PATH", "/shared/lab/profiles/:relative::/shared/site")
	if got := strings.Join(config.ProfileDirs(), " "); got != "/home/alice/.config/berth/profiles /shared/lab/profiles /shared/site /etc/berth/profiles" {
		t.Errorf("profiles are looked for in %q", got)
	}
}
