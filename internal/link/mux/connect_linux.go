package mux

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"berth/internal/link/trunk"
	"berth/internal/link/wire"
	"berth/internal/node/keeper"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// Times of the far side.
const (
	lookForKeeper = 100 * time.Millisecond // for one that has not begun yet
	keeperWatch   = time.Second
	spareTime     = 5 * time.Second
)

// ConnectMain is `berth-node connect --env DIR --mux [--wait TIME]`: the far
// side, beside the keeper of the environment in DIR. With --wait, a keeper that
// has not even begun is waited for. See the package's documentation.
func ConnectMain(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	// A scheduler that ends an allocation sends TERM to all its processes. This
	// one leaves when the keeper has ended, so that clients hear the last words.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE, syscall.SIGTERM)
	syscall.Umask(0o077)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // keys pass through, and what is beside it reads no memory
	fs := flag.NewFlagSet("connect", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("env", "", "the environment's directory")
	fs.Bool("mux", true, "carry many conversations")
	wait := fs.Duration("wait", 0, "how long a keeper that has not begun is waited for")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node connect --env DIR --mux [--wait TIME]")
		return jobs.CodeUsage
	}
	f := &farSide{dir: filepath.Clean(*dir), stderr: stderr}
	if err := f.run(stdin, stdout, *wait); err != nil {
		f.report(keeper.Failed(err))
		if errors.Is(err, keeper.ErrNotRunning) {
			return jobs.CodeNotFound
		}
		return jobs.CodeOf(err)
	}
	return 0
}

// farSide stands beside the keeper.
type farSide struct {
	dir    string
	stderr io.Writer
	t      *conversations
	rep    keeper.Report // of the opening
	ending sync.Once
	work   sync.WaitGroup // has files to remove

	mu    sync.Mutex
	spare io.ReadWriteCloser // a connection for the first who comes
}

func (f *farSide) report(r keeper.Report) { _ = r.Write(f.stderr, keeper.ConnectPrefix) }

func (f *farSide) progress(text string) {
	f.report(keeper.Report{Version: wire.Version, Progress: text})
}

// run serves the near side until it leaves or the keeper ends. An error is of
// the beginning.
func (f *farSide) run(stdin, stdout *os.File, wait time.Duration) error {
	if !filepath.IsAbs(f.dir) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the environment's directory " + f.dir + " is not an absolute path"}
	}
	in, out := wire.NewReader(stdin), wire.NewWriter(lines{stdout})
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	type hello struct {
		nearHello
		nonce wire.Nonce
	}
	greeted := make(chan hello, 1)
	go func() {
		var h hello
		_, err := in.Find(nearMagic, nil)
		if err == nil {
			h.nonce, err = in.Nonce()
		}
		if err == nil {
			err = in.Hello(&h.nearHello)
		}
		if err != nil {
			cancel(&jobs.Error{Kind: jobs.KindAgain, Msg: "whoever wanted to reach the environment's keeper has left", Err: err})
			return
		}
		greeted <- h
	}()
	conn, rep, err := f.reach(ctx, wait)
	if err != nil {
		return err
	}
	info, err := keeper.Peek(f.dir)
	if err == nil && info == nil {
		err = keeper.ErrNotRunning
	}
	if err != nil {
		return err
	}
	f.rep, f.spare = *rep, conn
	var h hello
	select {
	case h = <-greeted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.Version != version {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("berth on the near side speaks version %d of the protocol, this one version %d", h.Version, version),
			Hint: "stop the environment and open it again"}
	}
	f.report(f.rep)
	if err := out.Open(farMagic, h.nonce, farHello{Version: version, Report: f.rep}); err != nil {
		return err
	}
	// The streams below may be ones that nothing wakes; the process ends.
	f.t = trunk.New(in, out, f.serve, func() {})
	go f.watch(info)
	go func() {
		time.Sleep(spareTime)
		if c := f.takeSpare(); c != nil {
			_ = c.Close()
		}
	}()
	go f.t.Run(h.Interval)
	select {
	case <-f.t.Gone():
	case <-f.t.Leaves():
	}
	f.t.Fail(io.EOF)
	// Who has made files removes them.
	done := make(chan struct{})
	go func() {
		f.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(trunk.LastWords):
	}
	return nil
}

// reach connects to the keeper, and waits for one that opens.
func (f *farSide) reach(ctx context.Context, wait time.Duration) (io.ReadWriteCloser, *keeper.Report, error) {
	until := time.Now().Add(wait)
	told := time.AfterFunc(500*time.Millisecond, func() { f.progress("waiting for the environment's keeper") })
	defer told.Stop()
	for {
		conn, rep, err := keeper.Open(ctx, f.dir, keeper.OpenOptions{NoStart: true})
		if err == nil || wait <= 0 || !errors.Is(err, keeper.ErrNotRunning) && jobs.KindOf(err) != jobs.KindAgain || time.Now().After(until) {
			return conn, rep, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(lookForKeeper):
		}
	}
}

// takeSpare returns the connection that stands ready, once.
func (f *farSide) takeSpare() io.ReadWriteCloser {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.spare
	f.spare = nil
	return c
}

// watch ends the far side when the keeper has ended.
func (f *farSide) watch(info *keeper.Info) {
	self := lease.Self()
	tick := time.NewTicker(keeperWatch)
	defer tick.Stop()
	for {
		select {
		case <-f.t.Gone():
			return
		case <-tick.C:
			if info.Gone(self) {
				f.quit()
				return
			}
		}
	}
}

// quit leaves because the keeper has ended. What was said on the way stays in
// front of it.
func (f *farSide) quit() {
	f.ending.Do(func() {
		go func() {
			f.t.Quit(refusal(keeper.ErrNotRunning))
			f.t.Fail(keeper.ErrNotRunning)
		}()
		time.AfterFunc(trunk.LastWords, func() { f.t.Fail(keeper.ErrNotRunning) })
	})
}

// serve does what the near side asks for.
func (f *farSide) serve(s *stream) {
	switch s.Request.Kind {
	case kindKeeper:
		f.join(s)
	case kindPipe:
		f.pipe(s)
	case kindShared:
		if a := f.shared(s.Request.Shared); a.Err() != nil || s.Accept(a) != nil {
			s.Finish(a)
		} else {
			s.Finish(opened())
		}
	default:
		s.Finish(refusal(&jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("berth on the far side knows no requests of the kind %q", s.Request.Kind)}))
	}
}

// join joins a stream and a connection to the keeper.
func (f *farSide) join(s *stream) {
	conn, rep := f.takeSpare(), &f.rep
	if conn == nil {
		var err error
		if conn, rep, err = keeper.Open(context.Background(), f.dir, keeper.OpenOptions{NoStart: true}); err != nil {
			s.Finish(refusal(err))
			if errors.Is(err, keeper.ErrNotRunning) {
				f.quit()
			}
			return
		}
	}
	defer func() { _ = conn.Close() }()
	if s.Accept(answer{Report: *rep}) != nil {
		return
	}
	go func() { // wakes both directions
		<-s.Over()
		_ = conn.Close()
	}()
	go func() {
		_ = s.Drain(conn)
		if c, ok := conn.(*os.File); ok {
			socket.ShutWrite(c)
		}
	}()
	_ = s.Send(conn)
	s.CloseWrite()
	s.Finish(answer{Report: keeper.Report{Version: wire.Version, Ready: true}})
}
