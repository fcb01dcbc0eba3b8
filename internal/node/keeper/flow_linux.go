package keeper

import (
	"sync"

	"berth/internal/link/wire"
)

// flow checks the credit of one stream in both directions. Its ends keep to it
// by themselves; the keeper counts along, because one that does not would end
// the conversation with the guest, which all clients share.
type flow struct {
	mu     sync.Mutex
	up     map[wire.Type]*window // what the client sends
	down   map[wire.Type]*window // what the guest sends
	exited bool
}

type window struct {
	out  int // bytes on their way
	done bool
}

// newFlow is of a command: only channels that were asked for may be used.
func newFlow(m *wire.StartMessage) *flow {
	f := &flow{up: map[wire.Type]*window{}, down: map[wire.Type]*window{wire.Stdout: {}, wire.Stderr: {}}}
	if m.Report != "" {
		f.down[wire.Report] = &window{}
	}
	switch {
	case m.Prompt:
		f.up[wire.PromptData] = &window{}
	case m.Stdin || m.TTY != nil:
		f.up[wire.Stdin] = &window{}
	}
	return f
}

func (f *flow) data(side map[wire.Type]*window, t wire.Type, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := side[t]
	if w == nil || w.done || n > wire.Window-w.out {
		return wire.ErrFlow
	}
	w.out += n
	w.done = n == 0
	return nil
}

func (f *flow) credit(side map[wire.Type]*window, t wire.Type, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := side[t]
	if w == nil || n <= 0 || n > w.out {
		return wire.ErrFlow
	}
	w.out -= n
	return nil
}

// exit notes the end of the command; false is that it had been told before.
func (f *flow) exit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.exited
	f.exited = true
	return first
}

// over tells whether nothing more comes from the guest.
func (f *flow) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.down {
		if !w.done {
			return false
		}
	}
	return f.exited
}

// owed takes the numbers of bytes from the guest that still need credit.
func (f *flow) owed() map[wire.Type]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[wire.Type]int{}
	for t, w := range f.down {
		if w.out > 0 {
			out[t], w.out = w.out, 0
		}
	}
	return out
}
