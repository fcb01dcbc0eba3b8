package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/config"
	"berth/jobs/store"
)

// shared is a buffer for two goroutines.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	var out, errs shared
	a := &app{stdout: &out, stderr: &errs}
	f := a.follow(dir, false)
	if f.any() {
		t.Error("something was seen where nothing is")
	}
	file, err := os.Create(filepath.Join(dir, store.FileStdout))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, text := range []string{"one\n", "two"} {
		before := out.String()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(3 * time.Minute); out.String() != before+text; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q did not come: %q", text, out.String())
			}
		}
	}
	// What is written last, and the other stream, comes with the end.
	if _, err := file.WriteString("three"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, store.FileStderr), []byte("err"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.drain()
	f.stop()
	if out.String() != "one\ntwothree" || errs.String() != "err" || !f.any() {
		t.Errorf("stdout %q stderr %q", out.String(), errs.String())
	}
}

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
