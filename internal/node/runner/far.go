package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/sys/disk"
	"berth/internal/workspace"
	"berth/jobs"
)

// far is the place of an attempt that shares no files with this machine. The work
// tree goes there before a command and comes back after it, through the guest.
type far struct {
	*jobs.Far
	made bool // the work tree may be there
	keep bool // what is there did not come back
}

// work is where the work tree stands there.
func (f *far) work(c *container.Container) string {
	return path.Join(c.Session().Guest().Home, f.Dir, "work")
}

// send makes a fresh copy of the work tree on the host.
func (r *attempt) send(ctx context.Context, c *container.Container, p *place) error {
	if r.far == nil || r.spec.Workspace == nil {
		return nil
	}
	r.far.made = true
	work := r.far.work(c)
	made, err := c.Session().Start(session.StartRequest{Command: jobs.Command{
		Argv: []string{"/bin/sh", "-c", `umask 077; rm -rf "$1" && mkdir -p "$1"`, "sh", work},
	}}, nil, nil)
	if err == nil {
		var res session.Result
		if res, err = made.Wait(); err == nil && !res.Exit.OK() {
			err = errors.New(res.Exit.String())
		}
	}
	if err == nil {
		_, err = c.Session().CopyIn(ctx, "", p.work+"/.", work, nil)
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree to %s", r.far.What), Err: err, Hint: jobs.HintOf(err)}
	}
	return nil
}

// Bounds of what is done on the host after the command.
const (
	fetchTime = 10 * time.Minute
	cleanTime = 2 * time.Minute // a service may take its time
)

// fetch replaces the work tree here by the one on the host. When it cannot, the
// one there is kept, and what stands here is not the task's.
func (r *attempt) fetch(ctx context.Context, c *container.Container) error {
	if r.far == nil || r.spec.Workspace == nil {
		return nil
	}
	// Not ended by what ended the command: what it had done is its user's.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), r.hurried(fetchTime))
	defer stop()
	work := r.work()
	fresh := work + ".new"
	err := os.Mkdir(fresh, 0o700)
	if err == nil {
		_, err = c.Session().CopyOut(ctx, "", r.far.work(c)+"/.", fresh, nil)
	}
	if err == nil {
		err = disk.RemoveTree(work)
	}
	if err == nil {
		err = os.Rename(fresh, work)
	}
	if err != nil {
		r.far.keep = true
		_ = disk.RemoveTree(fresh)
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree back from %s, where it is kept", r.far.What), Err: err}
	}
	return nil
}

// VerbPutAway is berth-node's word for taking the task's .git out of a work tree that
// stays in a place without this machine's files.
const VerbPutAway = "put-away"

// PutAwayMain is the verb's main: its one argument is the work tree.
func PutAwayMain(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node "+VerbPutAway+" DIR")
		return 2
	}
	k, err := workspace.Keep(context.Background(), args[0], args[0])
	switch {
	case err != nil:
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	case k.Closed:
		return putAwayClosed
	}
	return 0
}

// putAwayClosed is its exit code where the tree is of mode 0 now.
const putAwayClosed = 3

// tellKept says where the work tree stays that did not come back, when a guest of its
// own has taken the task's .git out of it. The container of the command has closed.
func (r *attempt) tellKept(ctx context.Context) {
	f := r.far
	if f == nil || !f.keep {
		return
	}
	text := fmt.Sprintf("the task's files are kept, untrusted as the task left them, on %s in ~/%s/work%s", f.What, f.Dir, f.Until)
	switch closed, err := r.putAway(ctx); {
	case err != nil:
		text += "; the task's .git may still be there: run no git in it, and enter it with no shell whose prompt does: " + jobs.Printable(err.Error())
	case closed:
		text += "; it cannot be entered before chmod 700: not all of it could be looked through for a .git of the task's"
	}
	r.note(text)
}

// putAway runs the guest's own program on the work tree there.
func (r *attempt) putAway(ctx context.Context) (closed bool, err error) {
	// Not ended by what ended the command, but by a scheduler in a hurry.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), r.hurried(min(cleanTime, r.times.GuestWait/2)))
	defer stop()
	c, err := container.Open(ctx, container.Options{
		Opening: &jobs.Opening{Argv: r.opening.Argv, Env: r.opening.Env, Home: r.opening.Home, Answer: r.opening.Answer},
		On:      r.on, User: r.spec.User, Backend: r.spec.Backend, Stderr: r.logFile, Log: r.log, Note: r.note,
		Start: r.times.Start, GuestWait: r.times.GuestWait, Unmount: func() time.Duration { return r.hurried(r.times.Unmount) },
	})
	if err != nil {
		return false, err
	}
	defer c.Close()
	said := &bytes.Buffer{}
	p, err := c.Session().Start(session.StartRequest{Command: jobs.Command{Argv: []string{"/proc/self/exe", VerbPutAway, r.far.work(c)}}}, nil, said)
	if err != nil {
		return false, err
	}
	defer context.AfterFunc(ctx, c.ForceEnd)()
	res, err := p.Wait()
	if err == nil && !res.Exit.OK() && res.Exit.Code != putAwayClosed {
		err = fmt.Errorf("%s: %.300s", res.Exit.String(), bytes.TrimSpace(said.Bytes()))
	}
	return res.Exit.Code == putAwayClosed, err
}

// cleanFar removes what the attempt has there.
func (r *attempt) cleanFar() {
	f := r.far
	if f == nil || f.keep {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), cleanTime)
	defer stop()
	switch err := f.Remove(ctx, f.made); {
	case err == nil:
	case f.Whole:
		r.note(fmt.Sprintf("%s was not ended: %v%s", f.What, err, f.Until))
	default:
		r.note(fmt.Sprintf("~/%s was not removed on %s: %v", f.Dir, f.What, err))
	}
}
