package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/join"
	"berth/internal/node/keeper"
	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// verbRelay is the word of berth-node that is a relay: in the background of its machine, or
// attached to the stream of whoever has started it on a login host.
const verbRelay = "network-relay"

// relayIdle is how long a relay in the background stays while nothing needs it: jobs are
// submitted after it was started, too.
const relayIdle = 10 * time.Minute

// RelayLimit is how long a relay in the background stays when nothing else is said.
const RelayLimit = 12 * time.Hour

// A RelayState is the relay in the background of this machine.
type RelayState struct {
	Version int       `json:"version"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Start   string    `json:"start,omitempty"` // of the process, by which it is told from a later one
	Began   time.Time `json:"began"`
	Until   time.Time `json:"until"`
	Serves  []string  `json:"serves"` // jobs and environments that are connected
	Log     string    `json:"log"`
}

// relayFiles are what the relay of a state directory has on this machine's own disk.
type relayFiles struct{ lock, state, log string }

func (e *Engine) relayFiles() (relayFiles, error) {
	dir, err := socket.Dir()
	if err != nil {
		return relayFiles{}, err
	}
	base := strings.TrimSuffix(filepath.Join(dir, socket.Name("relay", "relay", e.Store.Home())), ".sock")
	return relayFiles{base + ".lock", base + ".json", base + ".log"}, nil
}

// take takes the lock; nil is that a relay runs. The file stays, so that one name is one lock.
func (r relayFiles) take() (*os.File, error) {
	f, err := os.OpenFile(r.lock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, nil
		}
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "lock " + r.lock, Err: err}
	}
	return f, nil
}

// RelayState returns the relay in the background of this machine; nil is that there is none.
func (e *Engine) RelayState() (*RelayState, error) {
	files, err := e.relayFiles()
	if err != nil {
		return nil, err
	}
	f, err := files.take()
	if err != nil {
		return nil, err
	}
	if f != nil {
		return nil, f.Close()
	}
	b, err := disk.ReadRegular(files.state, 1<<20)
	s := &RelayState{}
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "a relay is just starting, or ending", Err: err, Hint: "berth network relay status"}
	}
	return s, nil
}

// StartRelay starts a relay in the background, which ends after limit, or some minutes after
// nothing has needed it. One that runs is left alone; fresh is that this one has begun now.
func (e *Engine) StartRelay(ctx context.Context, limit time.Duration) (s *RelayState, fresh bool, err error) {
	if s, err = e.RelayState(); err != nil || s != nil {
		return s, false, err
	}
	files, err := e.relayFiles()
	if err != nil {
		return nil, false, err
	}
	node, err := e.Node()
	if err != nil {
		return nil, false, err
	}
	_, out, err := run.DetachTalking([]string{node, verbRelay, "--home", e.Store.Home(), "--limit", limit.String()}, os.Environ(), "/", files.log)
	if err != nil {
		return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "start the relay", Err: err}
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { _ = out.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(out).ReadString('\n')
	if rep, _ := keeper.ReadReport(line, "", nil); rep != nil {
		if err := rep.Err(); err != nil {
			return nil, false, err
		}
		s, err = e.RelayState()
		return s, err == nil, err
	}
	return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "the relay ended before it had begun", Err: err, Hint: "see " + files.log}
}

// StopRelay ends the relay in the background, and returns it; nil is that there was none.
func (e *Engine) StopRelay(ctx context.Context) (*RelayState, error) {
	s, err := e.RelayState()
	if err != nil || s == nil {
		return nil, err
	}
	if lease.StartTime(s.PID) == s.Start {
		_ = unix.Kill(s.PID, unix.SIGTERM)
	}
	for began := e.Now(); ; {
		if now, err := e.RelayState(); now == nil && err == nil {
			return s, nil
		}
		if e.Now().Sub(began) > 10*time.Second {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the relay, process %d, does not end", s.PID),
				Hint: fmt.Sprintf("kill -9 %d", s.PID)}
		}
		if err := e.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// relayMain is `berth-node network-relay --home DIR`: the relay of a state directory, in the
// background, or with --attached of one job until its input ends.
func relayMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// The reader of its first line is soon gone, and so may its terminal be.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Ignore(syscall.SIGHUP)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet(verbRelay, flag.ContinueOnError)
	fs.SetOutput(stderr)
	home, job := fs.String("home", "", "the state directory"), fs.String("job", "", "the one job")
	limit := fs.Duration("limit", RelayLimit, "when it ends")
	attached := fs.Bool("attached", false, "end with the standard input")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if !filepath.IsAbs(*home) || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node network-relay --home DIR [--limit TIME] [--attached --job ID]")
		return jobs.CodeUsage
	}
	_ = syscall.Setpriority(syscall.PRIO_PGRP, 0, 19) // others work on a login node
	debug.SetGCPercent(50)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	say := func(text string) {
		_, _ = fmt.Fprintf(stderr, "%s relay %d: %s\n", time.Now().UTC().Format(time.RFC3339), os.Getpid(), jobs.Printable(text))
	}
	st, err := store.Open(*home)
	var e *Engine
	if err == nil {
		e = assemble(st, nil, nil)
	}
	o := RelayOptions{Job: *job, Say: say, Idle: relayIdle}
	ready := func() { _ = keeper.Report{Version: wire.Version, Ready: true}.Write(stdout, "") }
	report := func(err error) { _ = keeper.Failed(err).Write(stdout, "") }
	if *attached {
		// Its standard output is the stream's.
		ready = func() { _ = keeper.Report{Version: wire.Version, Ready: true}.Write(stderr, join.Prefix) }
		report = func(err error) { _ = keeper.Failed(err).Write(stderr, join.Prefix) }
		o.Say = func(string) {}
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	if err == nil && !*attached {
		var end func()
		if end, err = e.background(&o, *limit); err == nil {
			defer end()
		}
	}
	if err != nil {
		report(err)
		return jobs.CodeOf(err)
	}
	ready()
	err = e.Relay(ctx, o)
	switch {
	case ctx.Err() == nil && err == nil:
		o.Say("ends: nothing needs it")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		o.Say("ends: its limit has passed")
	case ctx.Err() != nil:
		o.Say("ends: it was told to")
	default:
		o.Say("ends: " + err.Error())
		return jobs.CodeOf(err)
	}
	return jobs.CodeOK
}

// background has this process be the one relay of its state directory on this machine.
func (e *Engine) background(o *RelayOptions, limit time.Duration) (end func(), err error) {
	files, err := e.relayFiles()
	if err != nil {
		return nil, err
	}
	lock, err := files.take()
	for try := 0; lock == nil && err == nil && try < 10; try++ { // who only looks has it for a moment
		time.Sleep(20 * time.Millisecond)
		lock, err = files.take()
	}
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "a relay runs already", Hint: "berth network relay status"}
	}
	me := lease.Self()
	s := RelayState{Version: 1, Host: me.Host, PID: me.PID, Start: me.Start, Began: e.Now().UTC(), Until: e.Now().Add(limit).UTC(), Serves: []string{},
		Log: files.log}
	save := func() error {
		b, err := json.Marshal(s)
		if err != nil {
			return err
		}
		return disk.Replace(files.state, append(b, '\n'), 0o600)
	}
	if err := save(); err != nil {
		_ = lock.Close()
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the relay", Err: err}
	}
	o.Changed = func(serves []string) {
		slices.Sort(serves)
		s.Serves = append([]string{}, serves...)
		_ = save()
	}
	return func() {
		_ = os.Remove(files.state)
		_ = lock.Close()
	}, nil
}
