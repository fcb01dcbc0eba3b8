package node_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"berth/internal/node"
)

func TestIs(t *testing.T) {
	for line, want := range map[string]bool{
		"runner --attempt /x": true, "guest": true, "keep": true, "connect --env /x": true, "hold --env /x": true, "queue-wait": true, "": false, "submit": false, "--help": false, "run": false, "Guest": false, "x guest": false,
	} {
		if got := node.Is(strings.Fields(line)); got != want {
			t.Errorf("Is(%q) = %v", line, got)
		}
	}
}

// Each verb is dispatched to the one that knows it, and says what it wants.
func TestMainUsage(t *testing.T) {
	for line, want := range map[string]string{
		"": "usage: berth-node runner|rank|guest|dial|keep|connect|", "submit": "usage: berth-node runner|rank|guest|dial|keep|connect|", "dial 0": "usage: berth-node dial PORT", "dial a.example 0": "usage: berth-node dial HOST PORT",
		"rank":   "usage: berth-node rank --attempt DIR",
		"runner": "usage: berth-node runner --attempt DIR", "guest x": "usage: berth-node guest", "queue-wait": "usage: queue-wait --queue DIR", "examine": "usage: examine --json",
		"keep": "usage: berth-node keep --env DIR", "connect": "usage: berth-node connect --env DIR", "connect --mux": "usage: berth-node connect --env DIR --mux", "hold": "usage: berth-node hold --env DIR",
	} {
		t.Run(line, func(t *testing.T) {
			said, code := captured(t, func() int { return node.Main(strings.Fields(line)) })
			if code != 2 || !strings.Contains(said, want) {
				t.Errorf("exit %d: %s", code, said)
			}
		})
	}
}

// captured returns what a function writes to the standard error.
func captured(t *testing.T, do func() int) (string, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = w
	code := do()
	os.Stderr = old
	_ = w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), code
}
