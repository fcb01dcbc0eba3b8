package lease

import (
	"testing"
	"time"

	"berth/internal/run/headless"
)

// TestHeadless: a process goes on without its first thread.
func TestHeadless(t *testing.T) {
	cmd := headless.Start(t)
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("in vain: %s", what)
			}
		}
	}
	if at := StartTime(cmd.Process.Pid); at == "" || at == UnknownStart {
		t.Errorf("it lives, and began at %q", at)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually("its zombie is none", func() bool { return StartTime(cmd.Process.Pid) == "" })
}

func TestParseStat(t *testing.T) {
	state, threads, start, ok := parseStat("7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 4242 1 1")
	if !ok || state != "S" || threads != 3 || start != "4242" {
		t.Error(state, threads, start, ok)
	}
}

func FuzzStat(f *testing.F) {
	f.Add("7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1")
	f.Fuzz(func(_ *testing.T, s string) { _, _, _, _ = parseStat(s) })
}
