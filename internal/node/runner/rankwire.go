package runner

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// The runner and the ranks of its job talk through the command that starts them
// ([jobs.NodeScheduler.Ranks]). What goes down is a
// JSON object on every line, which that gives to all of them alike. What comes
// up are frames: it hands the output of several tasks on in pieces of about a
// kilobyte, mixed, and with --label says before each piece whose it is and ends
// it with a line break, whether or not the task has written one. So line breaks
// say nothing up there, and a byte that JSON never holds ends a frame.
const frameEnd = 0x1e

// order is what a runner tells its ranks.
type order struct {
	Kind string `json:"k"` // "go", "ping", "stop"
	// Env is of "go": the task's variables, its secrets among them.
	Env      []string      `json:"env,omitempty"`
	KillWait time.Duration `json:"kill_wait,omitempty"` // between a TERM of the scheduler's and its KILL
	Hurry    time.Duration `json:"hurry,omitempty"`     // of "stop", as in why
}

const (
	orderGo   = "go"
	orderPing = "ping"
	orderStop = "stop"
)

// frame is what a rank tells its runner.
type frame struct {
	Kind string   `json:"k"`
	Data []byte   `json:"d,omitempty"`
	End  *rankEnd `json:"end,omitempty"`
}

const (
	frameHello = "hello" // Data is the host
	frameReady = "ready" // the container stands; it waits for "go"
	frameOut   = "out"
	frameErr   = "err"
	frameLog   = "log"
	frameNote  = "note"
	framePong  = "pong"
	frameEnded = "end" // the last one: nothing of the rank is left on its node
)

// rankEnd is how a rank ended.
type rankEnd struct {
	Exit     jobs.Exit  `json:"exit"`
	MaxRSS   jobs.Bytes `json:"max_rss_bytes,omitempty"`
	OOMKills int        `json:"oom_kills,omitempty"`
	// Error is set when berth or the site failed, with its kind and hint; State
	// when the rank itself had a reason to stop, whose words are in Error.
	Error string     `json:"error,omitempty"`
	Kind  jobs.Kind  `json:"kind,omitempty"`
	Hint  string     `json:"hint,omitempty"`
	State jobs.State `json:"state,omitempty"`
}

// uplink writes frames. It is safe for concurrent use.
type uplink struct {
	mu sync.Mutex
	w  io.Writer
}

func (u *uplink) send(f frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	_, err = u.w.Write(append(b, frameEnd, '\n'))
	return err
}

// stream is a writer whose bytes become frames of one kind.
type stream struct {
	up   *uplink
	kind string
}

// Write implements [io.Writer].
func (s stream) Write(p []byte) (int, error) {
	const most = 16 << 10
	done := 0
	for done < len(p) {
		n := min(most, len(p)-done)
		if err := s.up.send(frame{Kind: s.kind, Data: p[done : done+n]}); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Close implements [io.Closer].
func (stream) Close() error { return nil }

// labelled takes the starter's standard output apart.
type labelled struct {
	run.Lines
	parts map[int][]byte // frames that have not ended
	frame func(rank int, f frame)
	noise func(line string) // what no rank has written
}

func newLabelled(frame func(rank int, f frame), noise func(line string)) *labelled {
	l := &labelled{parts: map[int][]byte{}, frame: frame, noise: noise}
	l.Lines = run.Lines{Most: maxFrame, Take: l.line}
	return l
}

// maxFrame bounds what is kept of a line or of a frame that never ends.
const maxFrame = 1 << 20

func (l *labelled) line(line string) {
	label, piece, ok := strings.Cut(line, ": ")
	rank, err := strconv.Atoi(strings.TrimSpace(label))
	if !ok || err != nil {
		l.noise(line)
		return
	}
	for {
		head, rest, ended := strings.Cut(piece, string(rune(frameEnd)))
		l.parts[rank] = append(l.parts[rank], head...)
		if !ended {
			break
		}
		var f frame
		if err := json.Unmarshal(l.parts[rank], &f); err != nil {
			l.noise(string(l.parts[rank]))
		} else {
			l.frame(rank, f)
		}
		l.parts[rank] = l.parts[rank][:0]
		piece = rest
	}
	if len(l.parts[rank]) > maxFrame {
		l.noise(string(l.parts[rank][:200]))
		l.parts[rank] = nil
	}
}

// lines hands the output of one rank on in whole lines, so that those of
// several do not mix within one. A line that is longer than it keeps is cut.
type lines struct {
	to      io.Writer
	pending []byte
}

const maxLine = 64 << 10

// Write implements [io.Writer].
func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	cut := bytes.LastIndexByte(l.pending, '\n') + 1
	if cut == 0 && len(l.pending) > maxLine {
		l.end()
		return len(p), nil
	}
	if cut > 0 {
		_, err := l.to.Write(l.pending[:cut])
		l.pending = append([]byte(nil), l.pending[cut:]...)
		return len(p), err
	}
	return len(p), nil
}

// end writes the last line, which has no line break of its own.
func (l *lines) end() {
	if len(l.pending) > 0 {
		_, _ = l.to.Write(append(l.pending, '\n'))
		l.pending = nil
	}
}
