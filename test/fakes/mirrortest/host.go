// Package mirrortest has a login host for tests: it is this machine with
// another home, and its link can be cut anywhere.
package mirrortest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"berth/internal/remote/replica"
	"berth/internal/sys/run"
	"berth/jobs"
)

// ErrLink is a link that breaks while something goes over it.
var ErrLink = &jobs.Error{Kind: jobs.KindInfra, Msg: "the link broke", Hint: "ssh login"}

// Host is a login host. Its fields may be changed between calls.
type Host struct {
	Home string // of the user there
	// Follow does there what jobs need done next; nil does nothing.
	Follow func(home string, ids []string) error

	mu    sync.Mutex
	calls []string
	fault Fault
}

// Fault is what goes wrong with the executions there.
type Fault struct {
	Verb    string              // the one that it is about; "" is each
	Hook    func()              // called first
	Down    bool                // nothing can be started
	CutIn   int                 // so many bytes arrive there; 0 is all, -1 none
	CutEnd  int                 // so many bytes at the end do not arrive there
	CutOut  int                 // so many bytes of the answer arrive; 0 is all, -1 none
	Lost    bool                // all is done there, and the word about it is lost
	Rewrite func([]byte) []byte // what a hostile host says in place of the answer
}

var _ replica.Host = (*Host)(nil)

// New returns a host whose user has an empty home.
func New(t testing.TB) *Host { return &Host{Home: t.TempDir()} }

// Set makes something go wrong from now on.
func (h *Host) Set(f Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = f
}

// Calls returns the verbs of the executions since the last time.
func (h *Host) Calls() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := strings.Join(h.calls, " ")
	h.calls = nil
	return s
}

// String names the host.
func (h *Host) String() string { return "ada@login" }

// Connect does nothing: there is always a connection.
func (h *Host) Connect(context.Context, bool) error { return nil }

// Local is a command with the environment of a login there.
func (h *Host) Local(c jobs.Cmd) (jobs.Cmd, error) {
	if c.Env != nil {
		return jobs.Cmd{}, errors.New("an environment of this machine went there")
	}
	return jobs.Cmd{Argv: c.Argv, Env: []string{"HOME=" + h.Home, "PATH=/usr/bin:/bin"}}, nil
}

// Start starts a command with the environment of a login there.
func (h *Host) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if f := h.begin(c.Argv[0]); f.Down {
		return nil, ErrLink
	}
	if c.Env != nil {
		return nil, errors.New("an environment of this machine went there")
	}
	c.Env = []string{"HOME=" + h.Home, "PATH=/usr/bin:/bin"}
	return run.Local{}.Start(ctx, c)
}

func (h *Host) begin(verb string) Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, verb)
	if h.fault.Verb != "" && h.fault.Verb != verb {
		return Fault{}
	}
	return h.fault
}

// Node runs the far side in this process.
func (h *Host) Node(_ context.Context, words []string, stdin func() io.Reader, stdout io.Writer, _ func(string)) error {
	f := h.begin(words[1])
	if f.Hook != nil {
		f.Hook()
	}
	if f.Down {
		return ErrLink
	}
	var in io.Reader = strings.NewReader("")
	if stdin != nil {
		in = stdin()
	}
	if f.CutIn != 0 {
		in = io.LimitReader(in, int64(max(0, f.CutIn)))
	}
	if f.CutEnd != 0 {
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b[:max(0, len(b)-f.CutEnd)])
	}
	var out, said bytes.Buffer
	live := stdout
	if live == nil {
		live = io.Discard
	}
	whole := f.CutOut == 0 && f.Rewrite == nil
	if !whole {
		live = &out
	}
	code := replica.Serve(words[1:], in, live, &said, func(name string) string {
		return map[string]string{"HOME": h.Home, "USER": "ada", "SHELL": "/bin/zsh"}[name]
	}, func(_ context.Context, home string, ids []string) error {
		if h.Follow == nil {
			return nil
		}
		return h.Follow(home, ids)
	})
	if !whole {
		b := out.Bytes()
		if f.Rewrite != nil {
			b = f.Rewrite(b)
		}
		if f.CutOut != 0 {
			b = b[:min(len(b), max(0, f.CutOut))]
		}
		if stdout != nil {
			if _, err := stdout.Write(b); err != nil {
				return err
			}
		}
	}
	if f.CutIn != 0 || f.CutEnd != 0 || f.CutOut != 0 || f.Lost {
		return ErrLink
	}
	if code != 0 {
		return &run.Error{Argv: []string{"berth-node"}, Exit: jobs.Exit{Started: true, Code: code}, Stderr: said.String()}
	}
	return nil
}
