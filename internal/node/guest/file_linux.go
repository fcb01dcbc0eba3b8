package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/internal/link/wire"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// fileOp is one operation on files. It runs in goroutines of the guest, with
// the guest's rights, which are those of commands.
type fileOp struct {
	s      *server
	stream uint32
	msg    wire.StartMessage
	req    *wire.FileRequest

	stdin          *wire.Inbox // or nil
	stdout, stderr *wire.Sender
	ctx            context.Context
	stop           context.CancelCauseFunc
	done           chan struct{}

	mu    sync.Mutex
	past  *os.File // see end
	ended bool
}

// errAbandoned is an operation whose client has gone or does not want it any
// more.
var errAbandoned = errors.New("given up before it was done")

// abandonFiles gives all operations on files up and waits until they have cleaned up;
// one that hangs in a dead file system is not waited for.
func (s *server) abandonFiles(wait time.Duration) {
	all := under[*fileOp](s)
	for _, op := range all {
		op.abandon()
	}
	deadline := time.After(wait)
	for _, op := range all {
		select {
		case <-op.done:
		case <-deadline:
			return
		}
	}
}

// startFile begins the operation of a start message.
func (s *server) startFile(stream uint32, m wire.StartMessage) {
	o := &fileOp{
		s: s, stream: stream, msg: m, req: m.File, done: make(chan struct{}),
		stdout: wire.NewSender(s.out, wire.Stdout, stream), stderr: wire.NewSender(s.out, wire.Stderr, stream),
	}
	o.ctx, o.stop = context.WithCancelCause(context.Background())
	if m.Stdin {
		o.stdin = wire.NewInbox(wire.Stdin)
	}
	s.streams.Put(stream, o)
	s.running.Add(1)
	s.guard(func() {
		defer s.running.Done()
		defer close(o.done)
		o.run()
		s.streams.Remove(stream)
	})
}

// frame serves a frame for this operation. It must not block.
func (o *fileOp) frame(f wire.Frame) error {
	switch f.Type {
	case wire.Stdin:
		if len(f.Payload) == 0 {
			o.end(nil)
		}
		if o.stdin != nil {
			return o.stdin.Put(f.Payload)
		}
	case wire.Credit:
		return wire.Granted(f, o.stdout)
	case wire.Terminate:
		o.abandon()
	}
	return nil
}

// end notes the named pipe of the input, or with nil that the input has ended.
func (o *fileOp) end(past *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if past != nil {
		o.past = past
	} else {
		o.ended = true
	}
	if o.past != nil && o.ended {
		wire.EndPast(o.past)
	}
}

// abandon makes the operation end and undo what is half done. The order counts:
// who sees the end of the input must be able to see why.
func (o *fileOp) abandon() {
	o.stop(errAbandoned)
	o.stdout.Stop()
	if o.stdin != nil {
		o.stdin.Fail()
	}
}

// run takes the operation from its request to its answer.
func (o *fileOp) run() {
	exit := wire.ExitMessage{Exit: jobs.Exit{Started: true}, Started: time.Now()}
	started := wire.StartedMessage{Time: exit.Started, Out: divert(o.stdout, o.msg.Out)}
	var past *os.File
	if o.stdin != nil {
		past = openPast(o.msg.In, unix.O_RDONLY)
		if past != nil {
			o.end(past)
		}
		started.In = past != nil
	}
	_ = o.s.out.Message(wire.Started, o.stream, started)
	in := o.input(past)
	path, res, err := o.path(), &wire.FileResult{}, error(nil)
	if path == "" || strings.ContainsRune(path, 0) {
		err = refuse(wire.FileInvalid, "the path is empty or holds a NUL byte")
	} else {
		res, err = o.do(path, in)
	}
	if err != nil {
		res = troubleOf(path, err)
		exit.Exit.Code = 1
	}
	if res.Path == "" {
		res.Path = wire.Text(shownPath(path))
	}
	// What the client still sends is thrown away, and it need not send it.
	in.close()
	if o.stdin != nil {
		o.stdin.Fail()
	}
	<-in.fed
	exit.File, exit.Ended = res, time.Now()
	_ = o.s.out.Message(wire.Exit, o.stream, exit)
	_, _ = o.stdout.Close(), o.stderr.Close()
	o.stop(nil)
}

// do does what is asked for.
func (o *fileOp) do(path string, in io.Reader) (*wire.FileResult, error) {
	switch o.req.Op {
	case wire.FileStat:
		return o.stat(path)
	case wire.FileSpace:
		return o.space(path)
	case wire.FileRead:
		return o.read(path)
	case wire.FileWrite, wire.FileReplace:
		return o.write(path, in)
	case wire.FilePack:
		return o.pack(path)
	case wire.FileUnpack:
		return o.unpack(path, in)
	}
	return nil, refuse(wire.FileInvalid, "this guest knows no operation %q: its environment was opened by another version of berth; "+
		"stop it, and it is opened by yours: berth env stop NAME", o.req.Op)
}

// path makes the request's path absolute, by no other change: the kernel, and
// not the text, says what ".." behind a symbolic link is.
func (o *fileOp) path() string {
	p, home := string(o.req.Path), o.s.place.get("HOME")
	switch {
	case p == "" || filepath.IsAbs(p):
		return p
	case p == "~":
		return home
	case strings.HasPrefix(p, "~/"):
		return home + p[1:]
	}
	base := string(o.msg.Dir)
	if base == "" {
		base = o.s.sessionDir(o.msg.Session)
	}
	if !filepath.IsAbs(base) {
		base = filepath.Join(home, base)
	}
	return strings.TrimSuffix(base, "/") + "/" + p
}

// shownPath is a path for people, without what does not matter in it.
func shownPath(path string) string {
	if path == "" || strings.HasSuffix(path, "/..") || strings.Contains(path, "/../") {
		return path
	}
	return filepath.Clean(path)
}

// aborted tells why to stop, or nil.
func (o *fileOp) aborted() error {
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return nil
}
