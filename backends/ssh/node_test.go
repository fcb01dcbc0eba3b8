package ssh

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/node/nodebin"
	"berth/internal/sys/run"
	"berth/jobs"
)

// TestNode: berth's program runs there with words and an input, in one
// execution once it is there; it is put there when it has gone.
func TestNode(t *testing.T) {
	const program = "#!/bin/sh\ncase $1 in\nguest) exit 2 ;;\nsay) shift; printf '%s|' \"$@\"; exec cat ;;\nfail) echo 'no room' >&2; exit 78 ;;\nesac\n"
	h, dir := fake(t, "FAKE_BANNER=Welcome")
	h.b.Node = func(string, string) (nodebin.Program, bool) { return nodebin.Of([]byte(program)), true }
	inputs := 0
	say := func(want int) {
		t.Helper()
		before := len(calls(t, dir))
		var out bytes.Buffer
		err := h.Node(t.Context(), []string{"say", "a b", "it's"}, func() io.Reader {
			inputs++
			return strings.NewReader("in\x00put\n")
		}, &out, nil)
		if err != nil || out.String() != "a b|it's|in\x00put\n" {
			t.Errorf("%q, %v", out.String(), err)
		}
		if n := len(calls(t, dir)) - before; n != want {
			t.Errorf("%d executions, want %d", n, want)
		}
	}
	say(3) // asks, puts, runs
	say(1)
	programs, _ := filepath.Glob(filepath.Join(dir, "home", binDir, "berth-node-*"))
	if len(programs) != 1 {
		t.Fatalf("%q", programs)
	}
	if err := os.Remove(programs[0]); err != nil {
		t.Fatal(err)
	}
	inputs = 0
	say(4) // misses it first
	if inputs != 2 {
		t.Errorf("%d inputs: the second start needs a fresh one", inputs)
	}
	var failed *run.Error
	if err := h.Node(t.Context(), []string{"fail"}, nil, nil, nil); !errors.As(err, &failed) || failed.Exit.Code != 78 || !strings.Contains(failed.Stderr, "no room") {
		t.Errorf("%v", err)
	}
	h.b.Env = append(h.b.Env, "FAKE_SAY=ada@there: Permission denied (publickey).")
	if err := h.Node(t.Context(), []string{"say"}, nil, nil, nil); jobs.KindOf(err) != jobs.KindAuth || jobs.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
