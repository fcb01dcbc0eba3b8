package mux

import (
	"encoding/json"
	"io"
	"time"

	"berth/internal/link/trunk"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// What stands before the first frame of each side.
const (
	nearMagic = "\x00berth-near\n"
	farMagic  = "\x00berth-far\n"
	version   = 1
)

// lines lets every write end in a line's end: a step of Slurm passes on the last line of
// a command's output only when it is whole, unless it is told --unbuffered (which
// puts a terminal in the place of a pipe). The line's end is the payload of a
// frame of an unknown type, and so is skipped.
type lines struct{ w io.Writer }

const lineEnd = "\x7f\x00\x00\x00\x00\x00\x00\x00\x01\n"

func (l lines) Write(p []byte) (int, error) {
	if _, err := l.w.Write(append(append(make([]byte, 0, len(p)+len(lineEnd)), p...), lineEnd...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// nearHello is the near side's first message.
type nearHello struct {
	Version  int           `json:"version"`
	Interval time.Duration `json:"interval_ns"` // of its pings
}

// farHello is the answer, when the keeper is reached.
type farHello struct {
	Version int           `json:"version"`
	Report  keeper.Report `json:"report"`
}

// Kinds of requests.
const (
	kindKeeper = "keeper" // a connection to the keeper
	kindPipe   = "pipe"   // a named pipe, for much data
	kindShared = "shared" // whether the far side sees a file
)

// request begins a conversation.
type request struct {
	Kind   string         `json:"kind"`
	Pipe   *pipeRequest   `json:"pipe,omitempty"`
	Shared *sharedRequest `json:"shared,omitempty"`
}

// answer is the first thing that is said to a request.
type answer struct {
	keeper.Report
	Pipe string `json:"pipe,omitempty"` // the name of a named pipe that was made
	// Listens is a holder's to who has started it: its socket stands, and its link is
	// about to be opened.
	Listens bool `json:"listens,omitempty"`
}

// refusal is the answer that brings an error.
func refusal(err error) answer { return answer{Report: keeper.Failed(err)} }

// A far command's conversations.
type (
	conversations = trunk.Trunk[request, answer]
	stream        = trunk.Stream[request, answer]
)

// line is a value as one line of JSON.
func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(refusal(&jobs.Error{Kind: jobs.KindInfra, Msg: "write an answer", Err: err}))
	}
	return append(b, '\n')
}
