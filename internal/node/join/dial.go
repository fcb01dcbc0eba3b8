package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Command is what is started on the job's node to come into the place of an
// attempt, for which it waits so long: node is the path of berth-node there, and
// dir the attempt's directory as that machine sees it. Nothing in it is secret.
func Command(node, dir string, wait time.Duration) []string {
	return []string{node, "join", "--attempt", dir, "--wait", wait.String()}
}

// VerbRelay is the word of berth-node that joins its streams to a supervisor that waits for
// a relay.
const VerbRelay = "relay-join"

// RelayCommand is what is started on the node of the attempt or environment in dir, for
// [Dial]: node is the path of berth-node there. The stream is a relay's, see package wayout.
func RelayCommand(node, dir string) []string { return []string{node, VerbRelay, "--dir", dir} }

// Dial starts a command that ends in [Command], and returns the stream to the
// guest once that is about to begin, with what join says of the place. progress
// takes what it says before that, and what others say that stand in between, as
// a scheduler does; it must be safe for concurrent use. The error of a command that
// ended without a report is a [*SilentError]. When ctx ends before the stream is
// returned, the command is ended.
func Dial(ctx context.Context, on jobs.Starter, c jobs.Cmd, progress func(string)) (io.ReadWriteCloser, *jobs.Inside, error) {
	words := &words{progress: progress, last: make(chan keeper.Report, 1)}
	words.lines = run.Lines{Most: maxLine, Take: words.take}
	c.Stderr = words
	// Some who start commands copy to these themselves.
	far, err := run.StartPiped(ctx, on, c, true)
	if err != nil {
		return nil, nil, err
	}
	s := &stream{far: far, said: wire.Gather(far.Out)}
	select {
	case rep := <-words.last:
		return s.opened(rep)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-far.Ended:
		select {
		case rep := <-words.last:
			return s.opened(rep)
		default:
			err = &SilentError{Program: c.Argv[0], Exit: far.Exit, Said: words.rest()}
		}
	}
	_ = s.Close()
	return nil, nil, err
}

// SilentError is a command that ended before join spoke.
type SilentError struct {
	Program string
	Exit    jobs.Exit
	Said    string // its last words, in one line
}

// Error names the program and what it said.
func (e *SilentError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("%s: %s", e.Program, e.Exit)
	}
	return fmt.Sprintf("%s: %s", e.Program, e.Said)
}

// stream is a conversation over the standard input and output of a command.
type stream struct {
	far     *run.Piped
	said    io.Reader // its output, see [wire.Gather]
	closing sync.Once
}

func (s *stream) opened(r keeper.Report) (io.ReadWriteCloser, *jobs.Inside, error) {
	if err := r.Err(); err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	if r.Inside == nil {
		r.Inside = &jobs.Inside{}
	}
	return s, r.Inside, nil
}

func (s *stream) Read(p []byte) (int, error)  { return s.said.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.far.In.Write(p) }

// closeWait is how long the command may take to end once its input has.
const closeWait = 5 * time.Second

// Close ends the conversation. The other side ends what it has started, and
// this is not waited for here; a command that stays is killed.
func (s *stream) Close() error {
	s.closing.Do(func() {
		s.far.Leave(closeWait)
	})
	return nil
}

// words reads the standard error of the other side: reports, and what else is
// said before the last of them. What comes after it may be the task's.
type words struct {
	progress func(string)
	last     chan keeper.Report // has room for it

	mu    sync.Mutex
	lines run.Lines
	said  []string
	done  bool
}

// Prefix begins a line of join's standard error that is a [keeper.Report]: what join
// says before the guest speaks.
const Prefix = "berth-join: "

const (
	maxLine = 4 << 20 // a report brings an environment
	maxSaid = 5       // lines
)

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return len(p), nil
	}
	return w.lines.Write(p)
}

// take reads one line.
func (w *words) take(line string) {
	if w.done {
		return
	}
	if last, ok := keeper.ReadReport(line, Prefix, w.progress); ok {
		if w.done = last != nil; w.done {
			w.last <- *last
		}
		return
	}
	line = strings.Join(strings.Fields(jobs.Printable(line)), " ")
	if line == "" {
		return
	}
	w.said = append(w.said, line)
	if len(w.said) > maxSaid {
		w.said = w.said[1:]
	}
	w.progress(line)
}

func (w *words) rest() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 400
	said := strings.Join(append(w.said[:len(w.said):len(w.said)], strings.Fields(jobs.Printable(w.lines.Rest()))...), "; ")
	if r := []rune(said); len(r) > most {
		said = "..." + string(r[len(r)-most:])
	}
	return said
}

// Refused explains, in the words of the scheduler, a command of
// [jobs.Cluster.Step] that ended before join spoke. Again says that it may work
// in a moment.
func Refused(err error, sc jobs.Cluster, h jobs.Handle) (out error, again bool) {
	var silent *SilentError
	if !errors.As(err, &silent) {
		return err, false
	}
	kind, hint, again := sc.StepError(h, silent.Said)
	return &jobs.Error{Kind: kind, Msg: "start a step beside the job", Err: err, Hint: hint}, again
}
