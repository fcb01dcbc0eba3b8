package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// Bounds of background processes.
const (
	maxRunning  = 64
	keptRecords = 200
)

// background are the background processes of an environment.
type background struct {
	dir string // of their records
	k   *keeper

	mu   sync.Mutex
	last int // highest number used
	live map[string]*process
	owed map[string]*process // that have ended, and whose end could not be recorded
}

// process is one that this keeper has started.
type process struct {
	b     *background
	start bgStart
	log   *bgLog
	stdin *feed
	proc  *session.Process
	done  chan struct{} // closed when the record of its end is written

	mu  sync.Mutex
	end *bgEnd
}

// newBackground reads what earlier keepers have left. What ran when they
// ended is lost, and is recorded so.
func newBackground(k *keeper) (*background, error) {
	b := &background{dir: filepath.Join(k.dir, dirBG), k: k, live: map[string]*process{}, owed: map[string]*process{}}
	if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	ids, err := bgIDs(b.dir)
	if err != nil {
		return nil, err
	}
	for _, n := range ids {
		b.last = max(b.last, n)
		dir := b.path(bgID(n))
		_, end, err := loadBG(dir)
		if err == nil && end == nil {
			_ = saveEnd(dir, bgEnd{Lost: lostBG, Ended: time.Now().UTC()})
		}
	}
	return b, nil
}

func (b *background) path(id string) string { return filepath.Join(b.dir, id) }

func (b *background) runningCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

// begin starts one. It counts in the keeper's life until its end.
func (b *background) begin(m *wire.StartMessage) (*process, error) {
	if m == nil || m.File != nil || m.Keep != nil || m.Prompt {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a background process needs a command"}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.live) >= maxRunning {
		return nil, &jobs.Error{Kind: jobs.KindAgain,
			Msg:  fmt.Sprintf("%d background processes run in this environment, and no more are allowed", len(b.live)),
			Hint: "berth bg list; berth bg kill ID"}
	}
	id, dir, err := b.makeDir()
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record a background process", Err: err, Hint: "is there space left? df -h " + b.dir}
	}
	p := &process{b: b, stdin: newFeed(), done: make(chan struct{}),
		start: bgStart{Version: 1, ID: id, Session: m.Session, Started: time.Now().UTC(),
			Command: jobs.Command{Shell: string(m.Shell), Argv: wire.Strings(m.Argv)}}}
	fail := func(err error) (*process, error) {
		_ = disk.RemoveTree(dir)
		return nil, err
	}
	if err := saveStart(dir, p.start); err != nil {
		return fail(&jobs.Error{Kind: jobs.KindInfra, Msg: "record a background process", Err: err, Hint: "is there space left? df -h " + b.dir})
	}
	if p.log, err = newBGLog(filepath.Join(dir, bgLogFile)); err != nil {
		return fail(&jobs.Error{Kind: jobs.KindInfra, Msg: "make the log of a background process", Err: err})
	}
	p.proc, err = b.k.box.Session().Start(session.StartRequest{
		Command: p.start.Command, Session: m.Session, Fork: m.Session != "", TTY: m.TTY, Timeout: m.Timeout, Grace: m.Grace,
		Env: wire.Strings(beneath(b.k.env, m.Env)), Dir: string(m.Dir), Stdin: p.stdin,
	}, p.log, p.log)
	if err != nil {
		_ = p.log.close()
		return fail(&jobs.Error{Kind: jobs.KindUsage, Msg: "start a background process", Err: err})
	}
	b.live[id] = p
	go p.watch()
	b.prune()
	return p, nil
}

// makeDir makes the directory of the next number; mkdir decides.
func (b *background) makeDir() (id, dir string, err error) {
	for {
		b.last++
		id = bgID(b.last)
		dir = b.path(id)
		if err = os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return id, dir, err
		}
	}
}

// prune removes the oldest records of those that have ended. The caller holds
// b.mu.
func (b *background) prune() {
	ids, err := bgIDs(b.dir)
	if err != nil {
		return
	}
	for over := len(ids) - len(b.live) - keptRecords; over > 0 && len(ids) > 0; ids = ids[1:] {
		if id := bgID(ids[0]); b.live[id] == nil {
			over--
			delete(b.owed, id)
			if err := disk.RemoveTree(b.path(id)); err != nil {
				b.k.log.Warn("an old record could not be removed", "id", id, "err", err)
			}
		}
	}
}

// watch waits for the end and records it.
func (p *process) watch() {
	defer p.b.k.life.end()
	res, err := p.proc.Wait()
	p.stdin.end()
	size, cut := p.log.state()
	end := bgEnd{Ended: time.Now().UTC(), Log: size, Cut: cut}
	if err != nil {
		end.Lost = lostBG
		if w := p.b.k.life.Why(); w != nil {
			end.Lost += ": " + w.text
		}
	} else {
		end.Exit, end.TimedOut = &res.Exit, res.TimedOut
		if !res.Ended.IsZero() {
			end.Ended = res.Ended
		}
	}
	if res.Output != nil {
		p.b.k.note(p.start.ID + ": some output was lost: " + res.Output.Error())
	}
	if err := p.log.close(); err != nil {
		p.b.k.log.Warn("a log could not be written to its end", "id", p.start.ID, "err", err)
	}
	serr := saveEnd(p.b.path(p.start.ID), end)
	if serr != nil {
		p.b.k.log.Error("the end of a background process could not be recorded", "id", p.start.ID, "err", serr)
	}
	p.mu.Lock()
	p.end = &end
	p.mu.Unlock()
	p.b.mu.Lock()
	delete(p.b.live, p.start.ID)
	if serr != nil {
		p.b.owed[p.start.ID] = p
	}
	p.b.mu.Unlock()
	close(p.done)
}

// settleOwed records what could not be recorded before, when a disk was full.
// The caller holds b.mu.
func (b *background) settleOwed() {
	for id, p := range b.owed {
		if saveEnd(b.path(id), *p.end) == nil {
			delete(b.owed, id)
		}
	}
}

// view is what is told of it.
func (p *process) view() wire.BG {
	p.mu.Lock()
	end := p.end
	p.mu.Unlock()
	v := p.start.view(end)
	v.Log, v.Cut = p.log.state()
	if v.Running {
		v.PID = p.proc.PID()
	}
	return v
}

// find returns one that runs, or the record of one that does not.
func (b *background) find(id string) (*process, wire.BG, error) {
	b.mu.Lock()
	b.settleOwed()
	p, owed := b.live[id], b.owed[id]
	b.mu.Unlock()
	switch {
	case p != nil:
		return p, p.view(), nil
	case owed != nil:
		return nil, owed.view(), nil
	}
	start, end, err := findBG(b.dir, id)
	if err != nil {
		return nil, wire.BG{}, err
	}
	return nil, start.view(end), nil
}

// list returns all, oldest first.
func (b *background) list() ([]wire.BG, error) {
	ids, err := bgIDs(b.dir)
	if err != nil {
		return nil, err
	}
	out := []wire.BG{}
	for _, n := range ids {
		if _, v, err := b.find(bgID(n)); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}

// kill sends a signal, or ends all that it has started and waits for that.
func (p *process) kill(ctx context.Context, signal int, grace time.Duration) error {
	if signal != 0 {
		return p.proc.Signal(syscall.Signal(signal))
	}
	if err := p.proc.Terminate(max(0, grace)); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(grace + 10*time.Second):
		return &jobs.Error{Kind: jobs.KindInfra, Msg: p.start.ID + " could not be ended",
			Hint: "berth env stop ends the environment with all that runs in it"}
	}
}

// settle waits for the records of those that ran.
func (b *background) settle(late context.Context) bool {
	b.mu.Lock()
	b.settleOwed()
	var all []*process
	for _, p := range b.live {
		all = append(all, p)
	}
	b.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.done:
		case <-late.Done():
			return false
		}
	}
	return true
}
