package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// ranked tells whether the task's command runs in several tasks of the job.
func (r *attempt) ranked() bool { return r.rank == nil && r.spec.Resources.Tasks > 1 }

// ranks are the tasks of a job under way, seen from its runner.
type ranks struct {
	r    *attempt
	argv []string // starts them
	down chan order

	mu     sync.Mutex
	all    []rankState
	failed bool          // one has failed and the others were told to stop
	err    error         // what berth or the site failed with, in the first that did
	ready  chan struct{} // closed when all are
	notes  []string
	said   []string // the last words of the command that starts them
}

// rankState is one of them. Its lines are written by the goroutine that reads
// the frames, all else under the lock.
type rankState struct {
	host       string
	ready      bool
	end        *rankEnd
	own        bool // it ended before anybody was told to stop
	unanswered int  // pings in a row
	out, err   *lines
}

func (rs *ranks) name(i int) string {
	if h := rs.all[i].host; h != "" {
		return fmt.Sprintf("rank %d on %s", i, h)
	}
	return fmt.Sprintf("rank %d", i)
}

// runRanks starts the job's tasks, lets their command begin once all stand
// ready, and follows them to the end of the last.
func (r *attempt) runRanks(ctx context.Context, secrets []string, out *outcome) error {
	// The script names this program by a path that all nodes see.
	argv := r.batch.Ranks(r.spec.Resources, r.spec.Slurm, jobs.RankArgv(os.Args[0], r.dir))
	if argv == nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "several tasks: no scheduler here starts them",
			Hint: "use the berth-node of the berth that submitted the job"}
	}
	if _, err := store.SetArgv(r.dir, argv); err != nil {
		return err
	}
	stdout, stderr, closeLogs, err := r.openLogs(store.FileStdout, store.FileStderr)
	if err != nil {
		return err
	}
	defer closeLogs()
	rs := &ranks{r: r, argv: argv, down: make(chan order, 64), all: make([]rankState, r.spec.Resources.Tasks), ready: make(chan struct{})}
	for i := range rs.all {
		rs.all[i].out, rs.all[i].err = &lines{to: stdout}, &lines{to: stderr}
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = orders.Close() }()
	from := newLabelled(rs.frame, func(line string) { r.log.Info("from a rank: " + line) })
	// The starter is ended through its ranks, and not by a context's end: they
	// have to clean up their nodes.
	starter, err := r.on.Start(context.WithoutCancel(ctx), jobs.Cmd{
		Argv:   argv,
		Env:    r.batch.RankEnviron(os.Environ()),
		Stdin:  in,
		Stdout: from,
		Stderr: &run.Lines{Most: maxLine, Take: rs.starterSays},
	})
	_ = in.Close()
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "start " + argv[0], Err: err}
	}
	ended := make(chan struct{})
	var exit jobs.Exit
	go func() {
		exit, _ = starter.Wait()
		close(ended)
	}()
	go rs.write(orders, ended)
	r.setRanks(rs)
	defer r.setRanks(nil)

	var deadline time.Time
	select {
	case <-rs.ready:
		out.started = time.Now().UTC()
		deadline = r.deadline(out.started)
		r.event("started", fmt.Sprintf("%d ranks", len(rs.all)))
		rs.order(order{Kind: orderGo, Env: r.taskEnv(secrets, deadline), KillWait: max(time.Duration(r.killWait.Load()), 5*time.Second)})
	case <-r.stop.Done():
	case <-ended:
	}
	// A rank ends its command as the runner of a single one does, and cleans up.
	r.follow(ended, deadline, func(time.Duration) {
		rs.order(order{Kind: orderStop, Hurry: r.stop.Why().hurry})
	}, 4*time.Second+r.times.Unmount, func() {
		r.log.Warn("the ranks did not end; ending what started them", "program", argv[0])
		_ = starter.Signal(syscall.SIGTERM) // the scheduler kills the ranks then
		time.AfterFunc(10*time.Second, func() { _ = starter.Signal(syscall.SIGKILL) })
	})
	return rs.conclude(out, exit)
}

// conclude says how the ranks ended, all together.
func (rs *ranks) conclude(out *outcome, starter jobs.Exit) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.r
	for _, n := range rs.notes {
		r.note(n)
	}
	worst, silent := -1, -1
	code := func(i int) int {
		if e := rs.all[i].end.Exit; e.Started || e.Code != 0 {
			return e.Code
		}
		return 1
	}
	for i := range rs.all {
		s := &rs.all[i]
		if s.end == nil {
			if silent < 0 {
				silent = i
			}
			continue
		}
		out.maxRSS = max(out.maxRSS, s.end.MaxRSS)
		r.boxOOMs += s.end.OOMKills
		// How those ended that were told to says nothing about the task,
		// unless all were.
		if (s.own || r.stop.Why() != nil) && (worst < 0 || code(i) > code(worst)) {
			worst = i
		}
	}
	if rs.err == nil && silent >= 0 && r.stop.Why() == nil {
		err := errRankSilent
		if rs.all[silent].host == "" {
			err = errors.New(rs.starter() + " did not start it (" + starter.String() + ")")
		}
		if len(rs.said) > 0 {
			err = fmt.Errorf("%w; %s says: %s", err, rs.starter(), strings.Join(rs.said, "; "))
		}
		return &jobs.Error{Kind: jobs.KindInfra, Msg: rs.name(silent), Err: err, Hint: "berth logs --runtime " + jobs.Short(r.spec.ID)}
	}
	if rs.err != nil {
		return rs.err
	}
	if worst >= 0 {
		out.exit = rs.all[worst].end.Exit
		if !out.exit.OK() {
			r.whose = " of " + rs.name(worst)
		}
	}
	r.heed(out.exit)
	if rs.failed {
		n := 0
		for i := range rs.all {
			if !rs.all[i].own {
				n++
			}
		}
		if n > 0 {
			r.note(fmt.Sprintf("%s failed, and the ranks that still ran (%d) were ended for it", rs.name(worst), n))
		}
	}
	return nil
}

// frame takes what a rank says. It is called by one goroutine.
func (rs *ranks) frame(i int, f frame) {
	if i < 0 || i >= len(rs.all) {
		return
	}
	s := &rs.all[i]
	switch f.Kind {
	case frameOut:
		_, _ = s.out.Write(f.Data)
		return
	case frameErr:
		_, _ = s.err.Write(f.Data)
		return
	case frameLog:
		rs.mu.Lock()
		name := rs.name(i)
		rs.mu.Unlock()
		for line := range strings.Lines(string(f.Data)) {
			rs.r.log.Info(name + ": " + strings.TrimSpace(line))
		}
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch f.Kind {
	case frameHello:
		s.host = string(f.Data)
	case frameReady:
		s.ready = true
		if !slices.ContainsFunc(rs.all, func(s rankState) bool { return !s.ready }) {
			close(rs.ready)
		}
	case framePong:
		s.unanswered = 0
	case frameNote:
		rs.notes = append(rs.notes, string(f.Data))
	case frameEnded:
		if s.end == nil && f.End != nil {
			s.out.end()
			s.err.end()
			s.end = f.End
			rs.ended(i)
		}
	}
}

// ended looks at how a rank ended. The first that fails ends the others, which
// may wait for it for ever.
func (rs *ranks) ended(i int) {
	s := &rs.all[i]
	s.own = !rs.failed && rs.r.stop.Why() == nil
	switch e := s.end; {
	case e.State != "":
		rs.r.stop.set(why{state: e.State, reason: rs.name(i) + ": " + e.Error, hint: e.Hint})
	case !s.own:
	case e.Error != "":
		if rs.err == nil {
			rs.err = &jobs.Error{Kind: e.Kind, Msg: rs.name(i), Err: errors.New(e.Error), Hint: e.Hint}
		}
		rs.halt()
	case !e.Exit.OK():
		rs.halt()
	}
}

// halt tells all ranks to stop, because one has failed.
func (rs *ranks) halt() {
	if !rs.failed {
		rs.failed = true
		rs.order(order{Kind: orderStop})
	}
}

// starter is the scheduler's program that starts the ranks.
func (rs *ranks) starter() string { return filepath.Base(rs.argv[0]) }

// order has something told to all ranks. It never blocks: when the starter takes
// nothing for so long, the ranks end for lack of pings.
func (rs *ranks) order(o order) {
	select {
	case rs.down <- o:
	default:
		rs.r.log.Warn("the ranks take no more orders", "lost", o.Kind)
	}
}

func (rs *ranks) write(w *os.File, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case o := <-rs.down:
			b, err := json.Marshal(o)
			if err == nil {
				_, err = w.Write(append(b, '\n'))
			}
			if err != nil {
				rs.r.log.Warn("the ranks could not be told something", "what", o.Kind, "err", err)
			}
		}
	}
}

// ping tells the ranks, and so their guests, that the runner stands, and ends
// the attempt when one of them answers no more.
func (rs *ranks) ping() {
	rs.mu.Lock()
	silent := -1
	for i := range rs.all {
		s := &rs.all[i]
		if s.host == "" || s.end != nil {
			continue
		}
		if s.unanswered > rs.r.times.Unanswered && silent < 0 {
			silent = i
		}
		s.unanswered++
	}
	name := ""
	if silent >= 0 {
		name = rs.name(silent)
	}
	rs.mu.Unlock()
	if silent >= 0 {
		rs.r.stop.set(why{state: jobs.StateError, reason: name + " does not answer: it was killed or stopped, or its node was lost"})
	}
	rs.order(order{Kind: orderPing})
}

func (r *attempt) setRanks(rs *ranks) {
	r.sessionMu.Lock()
	defer r.sessionMu.Unlock()
	r.ranks = rs
}

// missed ends the attempt when one of the ranks that the starter has named has
// not said how it ended: it was killed, and not by its runner. Where the words of
// the starter are others, pings find it out later.
func (rs *ranks) missed(among func(rank int) bool, how string) {
	rs.mu.Lock()
	name := ""
	for i := range rs.all {
		if name == "" && rs.all[i].end == nil && among(i) {
			name = rs.name(i)
		}
	}
	rs.mu.Unlock()
	if name != "" {
		rs.r.stop.set(why{state: jobs.StateError,
			reason: name + " ended without a word (" + how + "): it was killed, and not by berth",
			hint:   "was the node out of memory? see berth logs --runtime " + jobs.Short(rs.r.spec.ID)})
	}
}

// starterSays takes a line of what the starter itself has to say.
func (rs *ranks) starterSays(line string) {
	const keep = 3
	rs.mu.Lock()
	defer rs.mu.Unlock()
	line = strings.TrimSpace(line)
	rs.r.log.Info(line)
	if among, how, ok := rs.r.batch.RankEnded(line); ok {
		// What the rank itself has said comes on another stream.
		time.AfterFunc(2*time.Second, func() { rs.missed(among, how) })
	}
	rs.said = append(rs.said[max(0, len(rs.said)-keep+1):], line)
}
