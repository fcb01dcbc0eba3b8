package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"berth/jobs"
	"berth/jobs/finding"
	"berth/jobs/store"
	"berth/slurm/examine"
)

// NodeTime is the time limit of the job that looks at a node: Slurm counts in
// whole minutes.
const NodeTime = time.Minute

// OnNode looks at a compute node, in a job of one minute.
type OnNode struct {
	Scheduler jobs.Scheduler
	Ground    Ground
	Where     Where // as what
	ID        string
	Identity  jobs.Identity
	Resources jobs.Resources // what is asked for beside the time
	Reaper    jobs.Resources // what the job asks for that looks after another one
	Accounts  []string       // the user's, of Slurm
	// Say tells a person what is waited for.
	Say func(line string)
	// Wait bounds the time in the queue; 0 is no bound.
	Wait time.Duration
	Poll time.Duration // between looks for the answer; 0 is 300 ms
	// Ended is how long an answer may take to be seen after the job has ended;
	// 0 is 5 s, for file systems that remember missing names.
	Ended time.Duration
}

// Ground is where the scheduler's commands run: this machine, or one behind ssh.
type Ground interface {
	// Make makes a private directory that the nodes see, with the program for
	// them, whose path it returns too.
	Make(ctx context.Context) (dir, node string, err error)
	Write(ctx context.Context, path string, data []byte, mode fs.FileMode) error
	// Read returns a file, or [fs.ErrNotExist].
	Read(ctx context.Context, path string) ([]byte, error)
	// Remove removes all that Make has made.
	Remove(ctx context.Context) error
}

// Names in the directory of such a job.
const (
	dirPrefix   = ".doctor-"
	fileRequest = "request.json"
	fileAnswer  = "answer.json"
	fileScript  = "script.sh"
	fileReaper  = "reaper.sh"

	fileReaperLog = "reaper.log"
)

// unclearTime is how long the scheduler is asked for a job whose submission
// went wrong without a word: by then its controller has timed out or has it.
const unclearTime = 30 * time.Second

// Look submits the job, waits for its answer, and leaves nothing behind: when
// ctx ends, or the time in the queue is over, the job is cancelled.
func (o OnNode) Look(ctx context.Context) (p *Place, err error) {
	defer func() {
		rctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer stop()
		if rerr := o.Ground.Remove(rctx); err == nil && rerr != nil {
			err = infra("remove what the job needed", rerr, "")
		}
	}()
	dir, node, err := o.Ground.Make(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := o.Ground.(*There); ok {
		o.Identity = t.Identity
	}
	l := o.launch(dir, node)
	asked := l
	if _, ok := o.Scheduler.(tester); ok {
		o.Say("asking whether Slurm takes a job as berth submits them")
	}
	l, err = o.fit(ctx, l, func(ctx context.Context, l jobs.Launch) error { return o.test(ctx, l, fileScript) }, false)
	var h jobs.Handle
	submit := func(ctx context.Context, l jobs.Launch) error {
		script, err := o.write(ctx, l, fileScript)
		if err == nil {
			h, err = o.submit(ctx, l, script)
		}
		return err
	}
	switch {
	case err == nil, errors.Is(err, errNoTest):
		l, err = o.fit(ctx, l, submit, true) // a site may refuse what passed the test
	case jobs.KindOf(err) == jobs.KindRejected:
		err = submit(ctx, l) // or take what failed it: a job may wait for nodes that are down
	}
	if err != nil {
		return nil, err
	}
	reaper, rerr := o.reaper(ctx, l, h, node)
	p, err = o.await(ctx, h, dir)
	if err != nil {
		o.cancel(ctx, h)
		return nil, err
	}
	p.Findings = append(p.Findings, learned(asked, reaper)...)
	if rerr != nil {
		p.Findings = append(p.Findings, Finding{ID: IDNode, Scope: Scheduler, Subject: "retries", Status: Warn,
			Why: "the job that begins the next attempt is refused: " + oneLine(rerr.Error()),
			Do:  or(jobs.HintOf(rerr), "nodes_submit = false in a profile")})
	}
	return p, nil
}

// tester is a scheduler that can be asked whether it would take a job.
type tester interface {
	TestOnly(ctx context.Context, l jobs.Launch, scriptPath string) error
	Sends(l jobs.Launch) []string
}

// errNoTest is that no answer came of a test, which is no refusal.
var errNoTest = errors.New("it cannot be tried without being submitted")

// fit changes a job until try takes it.
func (o OnNode) fit(ctx context.Context, l jobs.Launch, try func(context.Context, jobs.Launch) error, once bool) (jobs.Launch, error) {
	f := examine.Fit{Accounts: o.Accounts, Try: try, Say: o.Say, Once: once, Sends: func(jobs.Launch) []string { return nil }}
	if t, ok := o.Scheduler.(tester); ok {
		f.Sends = t.Sends
	}
	return f.Run(ctx, l)
}

// test asks whether a job would be taken.
func (o OnNode) test(ctx context.Context, l jobs.Launch, file string) error {
	t, ok := o.Scheduler.(tester)
	if !ok {
		return errNoTest
	}
	script, err := o.write(ctx, l, file)
	if err != nil {
		return err
	}
	if err = t.TestOnly(ctx, l, script); err != nil && jobs.KindOf(err) != jobs.KindRejected && ctx.Err() == nil {
		o.Say("no answer from a test: " + oneLine(err.Error()))
		return errNoTest
	}
	return err
}

// reaper tries the job that would go on with this one when the scheduler has
// ended it, and returns the launch with what else the site refuses.
func (o OnNode) reaper(ctx context.Context, l jobs.Launch, h jobs.Handle, node string) (jobs.Launch, error) {
	if l.Profile.NodesMute || o.Reaper.Time == 0 {
		return l, nil
	}
	r := l
	r.Name, r.Aside, r.Resources, r.Log = jobs.ReaperName(o.ID), true, o.Reaper, fileReaperLog
	r.Argv = []string{node, jobs.VerbFollow, "--reap", "--attempt", "1", "--looks", "0", o.ID}
	o.Say("asking whether Slurm takes the job that begins the next attempt")
	got, err := o.fit(ctx, r, func(ctx context.Context, r jobs.Launch) error {
		if slices.Contains(r.Profile.Forbid, "dependency") {
			r.Wait = time.Minute
		} else {
			r.Behind = []jobs.Handle{h}
		}
		return o.test(ctx, r, fileReaper)
	}, false)
	if jobs.KindOf(err) != jobs.KindRejected {
		err = nil
	}
	if err == nil {
		l.Profile.Forbid, l.Slurm = got.Profile.Forbid, got.Slurm
	}
	return l, err
}

// learned are the findings about what the site refuses: what a job was changed in
// until it was taken, and what its profile had said before.
func learned(asked, taken jobs.Launch) (out []Finding) {
	for i, name := range taken.Profile.Forbid {
		f := Finding{ID: IDNode, Scope: Scheduler, Subject: "--" + name, Status: OK, Why: "not asked for: the profile forbids it"}
		if i >= len(asked.Profile.Forbid) {
			f.Status, f.Why, f.Do = Warn, "tried: a job that asks for it is refused, and one that does not is taken", examine.Forbid(name)
		}
		out = append(out, with(f, "forbid", name))
	}
	if a := taken.Slurm.Account; a != asked.Slurm.Account {
		f := Finding{ID: IDNode, Scope: Scheduler, Subject: "--account", Status: Warn,
			Why: "tried: a job that names no account is refused, and one with your only account is taken",
			Do:  "account = \"" + a + "\" below [slurm] in a profile"}
		out = append(out, with(f, "account", a))
	}
	return out
}

// launch is the job that looks at a node. It asks as jobs do: the site is to
// refuse it for what it would refuse them for.
func (o OnNode) launch(dir, node string) jobs.Launch {
	res := o.Resources
	res.Time = NodeTime
	p := o.Where.Profile
	p.Forbid = slices.Clip(p.Forbid)
	return jobs.Launch{
		Attempt: o.ID, Name: jobs.JobName("doctor", o.ID), Dir: dir, Identity: o.Identity, Resources: res, Slurm: p.Slurm, Profile: p,
		Requeue: true,
		Comment: []string{"berth doctor: looks at this node and ends"},
		Argv:    []string{node, "examine", "--json", "--request", path.Join(dir, fileRequest), "--answer", path.Join(dir, fileAnswer)},
	}
}

// write writes what the job needs, and returns its script's path.
func (o OnNode) write(ctx context.Context, l jobs.Launch, file string) (script string, err error) {
	w := o.Where
	w.Version, w.Where, w.Profile = Version, "node", l.Profile
	w.Profile.Slurm = l.Slurm
	b, err := json.Marshal(w)
	if err != nil {
		return "", err
	}
	if file != fileReaper { // that one reads none, and the job before it may just be reading its own
		if err := o.Ground.Write(ctx, path.Join(l.Dir, fileRequest), b, 0o600); err != nil {
			return "", infra("write the request", err, "is there space left? df -h "+l.Dir)
		}
	}
	text, err := o.Scheduler.Render(l)
	if err != nil {
		return "", err
	}
	script = path.Join(l.Dir, file)
	if err := o.Ground.Write(ctx, script, []byte(text), 0o700); err != nil {
		return "", infra("write the job script", err, "is there space left? df -h "+l.Dir)
	}
	return script, nil
}

// submit hands the job over. One that may have been taken is looked for by its
// name, and never submitted again.
func (o OnNode) submit(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error) {
	o.Say("submitting a job of one minute")
	h, err := o.Scheduler.Submit(ctx, l, script)
	kind := jobs.KindOf(err)
	if err == nil || kind != jobs.KindUnclear && kind != jobs.KindUnknown && ctx.Err() == nil {
		return h, err
	}
	o.Say("it is not clear whether the scheduler has the job: looking for it by its name")
	deadline := time.Now().Add(unclearTime)
	for pause := time.Second; ; pause = min(2*pause, 8*time.Second) {
		find, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		found, ferr := o.Scheduler.Find(find, []string{l.Name})
		cancel()
		if got, ok := found[l.Name]; ferr == nil && ok {
			if ctx.Err() != nil {
				o.cancel(ctx, got)
				return h, context.Cause(ctx)
			}
			return got, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil && ferr == nil {
			if ctx.Err() != nil {
				return h, context.Cause(ctx)
			}
			return h, &jobs.Error{Kind: jobs.KindInfra, Msg: "the scheduler did not take the job that looks at a node", Err: err,
				Hint: examine.CancelNamed(l.Name) + " ends it, should it appear"}
		}
		time.Sleep(pause)
	}
}

// await waits for the answer.
func (o OnNode) await(ctx context.Context, h jobs.Handle, dir string) (*Place, error) {
	poll := o.Poll
	if poll == 0 {
		poll = 300 * time.Millisecond
	}
	late := o.Ended
	if late == 0 {
		late = 5 * time.Second
	}
	begun := time.Now()
	asked, said := begun, ""
	var ended, started time.Time
	var last jobs.Status
	for {
		b, err := o.Ground.Read(ctx, path.Join(dir, fileAnswer))
		if err == nil {
			p, err := ReadAnswer(b)
			if err != nil {
				return nil, infra("read the node's answer", err, "")
			}
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, infra("read the node's answer", err, "")
		}
		now := time.Now()
		// Who gives up looks once more: it may have started since the last look.
		over := o.Wait > 0 && started.IsZero() && ended.IsZero() && now.Sub(begun) > o.Wait
		if every := min(3*time.Second, 4*poll); over || now.Sub(asked) >= every {
			asked = now
			if got, err := o.Scheduler.Status(ctx, []jobs.Handle{h}); err == nil {
				if st, ok := got[h.Name]; ok {
					last = st
				}
				switch {
				case last.State.Final() && ended.IsZero():
					ended = now
				case last.State == jobs.StateRunning && started.IsZero():
					started = now
				}
			}
			line := "job " + h.NativeID + " waits: " + or(last.Reason, "no reason given yet")
			switch {
			case !ended.IsZero():
				line = "job " + h.NativeID + " has ended: looking for its answer"
			case !started.IsZero():
				line = "job " + h.NativeID + " runs on " + or(last.Node, "a node")
			}
			if line != said {
				o.Say(line)
				said = line
			}
		}
		switch {
		case !ended.IsZero() && now.Sub(ended) > late:
			return nil, o.noAnswer(ctx, last, dir)
		case !started.IsZero() && now.Sub(started) > NodeTime+time.Minute:
			return nil, infra(fmt.Sprintf("job %s runs on %s and does not answer", h.NativeID, or(last.Node, "a node")), nil,
				"is the directory "+path.Dir(dir)+" the same there?")
		case over && started.IsZero() && ended.IsZero():
			return nil, &jobs.Error{Kind: jobs.KindAgain,
				Msg: "job " + h.NativeID + " has not started within " + o.Wait.String() +
					" (" + or(last.Reason, "it waits") + "), and was cancelled",
				Hint: "--wait gives it longer; a partition with free nodes starts it sooner (" + examine.ShowNodes + ")"}
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// noAnswer explains a job that has ended without one.
func (o OnNode) noAnswer(ctx context.Context, last jobs.Status, dir string) error {
	e := &jobs.Error{Kind: jobs.KindInfra,
		Msg:  "the job on " + or(last.Node, "the node") + " ended without an answer (" + or(last.NativeState, "unknown") + ")",
		Hint: last.Hint}
	if last.Code == jobs.CodeNotRunnable {
		e.Hint = store.HintNoExec
	}
	if b, err := o.Ground.Read(ctx, path.Join(dir, jobs.SchedulerLog)); err == nil && len(strings.TrimSpace(string(b))) > 0 {
		e.Err = errors.New(oneLine(finding.LastLine(string(b))))
	} else if e.Hint == "" {
		e.Hint = "does that node see " + path.Dir(dir) + ", and may programs run there?"
	}
	return e
}

// cancel ends the job, also after ctx has ended.
func (o OnNode) cancel(ctx context.Context, h jobs.Handle) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer stop()
	if err := o.Scheduler.Cancel(ctx, []jobs.Handle{h}); err != nil {
		o.Say("job " + h.NativeID + " could not be cancelled (" + err.Error() + "); it ends by itself within a minute of its start: " +
			examine.CancelID(h.NativeID))
		return
	}
	// Its directory is removed next: it should not start in between.
	for range 20 {
		got, err := o.Scheduler.Status(ctx, []jobs.Handle{h})
		if st, ok := got[h.Name]; err != nil || !ok || st.State.Final() {
			return
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func infra(msg string, err error, hint string) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err, Hint: hint}
}
