package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/node/supervise"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// rank is one of several tasks of a job, a process of its own on its node. It
// opens a container there, runs the task's command in it, and does what the
// runner says. It writes nothing into the attempt's directory, but the first one
// tells where its container is.
type rank struct {
	*attempt
	id    string // among the ranks
	up    *uplink
	began chan order // the "go", once
	once  sync.Once
}

// RankMain is `berth-node rank --attempt DIR`, which the scheduler starts in every
// task of a job that has several. Orders come in on stdin, frames go out on stdout.
// It returns the exit code of the task's command.
func RankMain(args []string, openers []jobs.Opener, stdin io.Reader, stdout, stderr io.Writer) int {
	return startRank(args, openers, stdin, stdout, stderr, os.Getenv, defaultTimes())
}

func startRank(args []string, openers []jobs.Opener, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string, periods times) int {
	signals := supervise.Signals()
	fs := flag.NewFlagSet(jobs.VerbRank, flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("attempt", "", "the attempt's directory")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	in, job := batch.Here(getenv)
	if *dir == "" || job.Rank == "" {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node rank --attempt DIR\nThe scheduler starts it in the job of berth-node runner.")
		return jobs.CodeUsage
	}
	supervise.Shield()
	k := &rank{id: job.Rank, up: &uplink{w: stdout}, began: make(chan order, 1)}
	host, _ := os.Hostname()
	r := &attempt{
		dir:     filepath.Clean(*dir),
		jobDir:  store.JobDirOf(filepath.Clean(*dir)),
		on:      run.Local{},
		times:   periods,
		began:   time.Now(),
		rank:    k,
		batch:   in,
		openers: openers,
		claim:   jobs.Claim{NativeID: job.ID, Node: job.Node, Host: host, BootID: lease.BootID(), PID: os.Getpid()},
		logFile: stream{k.up, frameLog},
	}
	k.attempt = r
	r.log = slog.New(slog.NewTextHandler(r.logFile, nil))
	r.killWait.Store(int64(5 * time.Second))
	_ = k.up.send(frame{Kind: frameHello, Data: []byte(host)})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go k.orders(stdin)
	go func() {
		for sig := range signals {
			if supervise.Asks(sig) {
				r.stop.set(why{state: jobs.StateCancelled, reason: "ended by the scheduler", hurry: time.Duration(r.killWait.Load())})
			}
		}
	}()
	end := k.work(ctx)
	for _, n := range r.notes {
		_ = k.up.send(frame{Kind: frameNote, Data: []byte(n)})
	}
	if err := k.up.send(frame{Kind: frameEnded, End: &end}); err != nil {
		return jobs.CodeInfra
	}
	switch {
	case end.Error != "":
		return jobs.CodeOf(&jobs.Error{Kind: end.Kind})
	case !end.Exit.Started:
		return max(end.Exit.Code, 1)
	}
	return end.Exit.Code
}

// orders carries out the runner's orders until the stream is closed. Then the rank
// ends, because no runner asks for its result any more.
func (k *rank) orders(stdin io.Reader) {
	in := bufio.NewReader(stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			k.stop.set(why{state: jobs.StateError, reason: "the runner of its job is gone"})
			return
		}
		var o order
		if json.Unmarshal(line, &o) != nil {
			continue
		}
		switch o.Kind {
		case orderGo:
			k.killWait.Store(int64(o.KillWait))
			k.once.Do(func() { k.began <- o })
		case orderPing:
			k.ping()
			_ = k.up.send(frame{Kind: framePong})
		case orderStop:
			k.stop.set(why{state: jobs.StateCancelled, reason: "told to stop by its runner", hurry: o.Hurry})
		}
	}
}

// work takes the rank to its end; after it nothing of it is left on the node.
func (k *rank) work(parent context.Context) rankEnd {
	ctx, cancel := k.stop.Context(parent)
	defer cancel()
	out := &outcome{}
	err := k.command(ctx, out)
	supervise.GiveBack(k.scratch, out.place.close, k.note)
	e := rankEnd{Exit: out.exit, MaxRSS: out.maxRSS, OOMKills: k.oomKills()}
	// An order to stop is no news to the runner; what this node has found is.
	if w := k.stop.Why(); w != nil {
		if w.state != jobs.StateCancelled {
			e.State, e.Error, e.Hint = w.state, w.reason, w.hint
		}
	} else if err != nil {
		e.Error, e.Kind, e.Hint = err.Error(), jobs.KindOf(err), jobs.HintOf(err)
	}
	return e
}

// command opens the container, waits for the order to begin, and runs the
// task's command.
func (k *rank) command(ctx context.Context, out *outcome) error {
	rec, err := store.LoadDir(k.jobDir)
	if err != nil {
		return err
	}
	a, err := store.LoadAttempt(k.dir)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the attempt", Err: err,
			Hint: "does this node see " + k.dir + "? BERTH_HOME must be on a file system that the nodes share"}
	}
	k.spec, k.info = rec.Spec, a.Info
	if b := k.spec.Profile.Beat; b > 0 {
		k.times = timesOf(b)
	}
	prompt, err := store.Prompt(k.jobDir, k.spec.PromptBytes)
	if err != nil {
		return err
	}
	k.cgroup = container.OwnCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	k.jobCgroup = k.cgroup.ForJob(k.batch, k.claim.NativeID)
	k.ooms = k.jobCgroup.OOMKills()
	if out.place, err = k.prepare(ctx); err != nil {
		return err
	}
	k.watchMemory(ctx)
	k.watchSpace(ctx, out.place)
	c, argv, err := k.open(ctx, out.place, "")
	if err != nil {
		return err
	}
	defer k.close(c)
	if err := k.writeReceipt(c, argv, out.place); err != nil {
		return err
	}
	if err := k.up.send(frame{Kind: frameReady}); err != nil {
		return err
	}
	var o order
	select {
	case o = <-k.began:
	case <-k.stop.Done():
		return errStopped
	}
	env := append(batch.Passed(os.Environ()), o.Env...)
	env = append(k.batch.RankPassed(k.spec.Slurm, os.Environ()), env...)
	if k.id == "0" {
		k.recordInside(c, append(batch.Passed(os.Environ()), k.taskEnv(nil, time.Time{})...))
	}
	stdout, stderr := stream{k.up, frameOut}, stream{k.up, frameErr}
	out.started = time.Now()
	p, err := c.Session().Start(session.StartRequest{Command: k.spec.Command, Env: env, Dir: k.workDir(c), Prompt: prompt}, stdout, stderr)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "start the command", Err: err}
	}
	res, err := k.supervise(c, p, time.Time{}) // the runner knows the time
	if err != nil {
		return err
	}
	out.exit, out.maxRSS = res.Exit, res.MaxRSS
	k.full(ctx, c, out.place, res.Exit, k.stderrFile())
	return k.abandoned(c, res.Unpinged)
}

var errRankSilent = errors.New("it ended without a word: it was killed, or its node was lost")
