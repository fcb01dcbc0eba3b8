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
	l, script, err := o.prepare(ctx, dir, node)
	if err != nil {
		return nil, err
	}
	h, err := o.submit(ctx, l, script)
	var refused []Finding
	if jobs.KindOf(err) == jobs.KindRejected && o.Resources.Memory != 0 && !slices.Contains(o.Where.Profile.Forbid, "mem") {
		// Some sites refuse --mem, with a text of their own.
		f := Finding{ID: IDNode, Scope: Scheduler, Subject: "--mem", Status: Warn,
			Why: "a job that asks for memory is refused, and one that does not is taken: " + oneLine(err.Error()),
			Do:  `forbid = ["mem"] in a profile`}
		refused = append(refused, with(f, "forbid", "mem"))
		o.Say("Slurm refused it; trying without --mem")
		o.Resources.Memory = 0
		if l, script, err = o.prepare(ctx, dir, node); err == nil {
			h, err = o.submit(ctx, l, script)
		}
	}
	if err != nil {
		return nil, err
	}
	p, err = o.await(ctx, h, dir)
	if err != nil {
		o.cancel(ctx, h)
		return nil, err
	}
	p.Findings = append(p.Findings, refused...)
	return p, nil
}

// prepare writes what the job needs.
func (o OnNode) prepare(ctx context.Context, dir, node string) (l jobs.Launch, script string, err error) {
	w := o.Where
	w.Version, w.Where = Version, "node"
	b, err := json.Marshal(w)
	if err != nil {
		return l, "", err
	}
	request := path.Join(dir, fileRequest)
	if err := o.Ground.Write(ctx, request, b, 0o600); err != nil {
		return l, "", infra("write the request", err, "is there space left? df -h "+dir)
	}
	res := o.Resources
	res.Time = NodeTime
	l = jobs.Launch{
		Attempt: o.ID, Name: jobs.JobName("doctor", o.ID), Dir: dir, Identity: o.Identity, Resources: res, Slurm: w.Profile.Slurm, Profile: w.Profile,
		Comment: []string{"berth doctor: looks at this node and ends"},
		Argv:    []string{node, "examine", "--json", "--request", request, "--answer", path.Join(dir, fileAnswer)},
	}
	text, err := o.Scheduler.Render(l)
	if err != nil {
		return l, "", err
	}
	script = path.Join(dir, fileScript)
	if err := o.Ground.Write(ctx, script, []byte(text), 0o700); err != nil {
		return l, "", infra("write the job script", err, "is there space left? df -h "+dir)
	}
	return l, script, nil
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
			if !started.IsZero() {
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
				Msg:  "job " + h.NativeID + " has not started within " + o.Wait.String() + " (" + or(last.Reason, "it waits") + "), and was cancelled",
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
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "the job on " + or(last.Node, "the node") + " ended without an answer (" + or(last.NativeState, "unknown") + ")",
		Hint: last.Hint}
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
		o.Say("job " + h.NativeID + " could not be cancelled (" + err.Error() + "); it ends by itself within a minute of its start: " + examine.CancelID(h.NativeID))
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
