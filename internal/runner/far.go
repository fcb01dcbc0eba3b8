package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"berth/backends/ssh"
	"berth/internal/container"
	"berth/internal/disk"
	"berth/internal/session"
	"berth/jobs"
)

// farJobs is where the work trees of jobs stand in a place that is no file
// system of this machine's, below the home there.
const farJobs = ".local/state/berth/ssh/jobs"

// far is the place of a job that has no file system in common with this
// machine: a host of backend ssh, a sandbox of a service. The work tree goes
// there before a command and comes back after it, through the guest.
type far struct {
	what    string       // for people, after "on": "HOST", "the sandbox REF"
	opening jobs.Opening // how its guest is started, any number of times
	dir     string       // of this attempt there, below the home
	made    bool         // it may be there
	keep    bool         // what is there did not come back
	until   string       // for people: how long what is kept is there, and who ends it; "" is for ever
	// clean removes what the attempt has there; with keep it is not called.
	clean func(ctx context.Context, f *far) error
}

// farHere tells whether the job's place is far.
func (r *attempt) farHere() bool {
	return r.spec.Backend == jobs.BackendSSH || r.spec.External != nil
}

// newFar prepares the place.
func (r *attempt) newFar(ctx context.Context) (*far, error) {
	switch {
	case r.spec.External != nil:
		return r.newSandbox(ctx)
	case r.spec.SSH != nil:
		return r.newHost(ctx)
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the job names no host of ssh"}
}

// newHost puts the program on the host.
func (r *attempt) newHost(ctx context.Context) (*far, error) {
	b := ssh.Backend{On: r.on, Env: ssh.Environ(os.Environ()), Join: true}
	h, err := b.Host(*r.spec.SSH)
	if err != nil {
		return nil, err
	}
	name, err := h.Install(ctx, true, func(text string) { r.event("preparing", text) })
	if err != nil {
		return nil, err
	}
	argv, err := b.Argv(jobs.Place{SSH: r.spec.SSH, Guest: name}, []string{"guest"})
	if err != nil {
		return nil, err
	}
	return &far{what: h.String(), dir: path.Join(farJobs, r.info.ID), opening: jobs.Opening{Argv: argv, Env: ssh.Environ(os.Environ())},
		clean: func(ctx context.Context, f *far) error {
			if !f.made {
				return nil
			}
			p, err := h.Start(ctx, jobs.Cmd{Argv: []string{"/bin/sh", "-c", `chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"`, "sh", f.dir}})
			if err != nil {
				return err
			}
			e, err := p.Wait()
			if err == nil && !e.OK() {
				err = errors.New(e.String())
			}
			return err
		}}, nil
}

// work is where the work tree stands there.
func (f *far) work(c *container.Container) string {
	return path.Join(c.Session().Guest().Home, f.dir, "work")
}

// send makes a fresh copy of the work tree on the host.
func (r *attempt) send(ctx context.Context, c *container.Container) error {
	if r.far == nil || r.spec.Workspace == nil {
		return nil
	}
	r.far.made = true
	work := r.far.work(c)
	p, err := c.Session().Start(session.StartRequest{Command: jobs.Command{Argv: []string{"/bin/sh", "-c", `umask 077; rm -rf "$1" && mkdir -p "$1"`, "sh", work}}}, nil, nil)
	if err == nil {
		var res session.Result
		if res, err = p.Wait(); err == nil && !res.Exit.OK() {
			err = errors.New(res.Exit.String())
		}
	}
	if err == nil {
		_, err = c.Session().CopyIn(ctx, "", filepath.Join(r.dir, "work")+"/.", work, nil)
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree to %s", r.far.what), Err: err, Hint: jobs.HintOf(err)}
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
	fresh, work := filepath.Join(r.dir, "work.new"), filepath.Join(r.dir, "work")
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
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree back from %s, where it is kept in ~/%s/work%s", r.far.what, r.far.dir, r.far.until), Err: err}
	}
	return nil
}

// cleanFar removes what the attempt has there.
func (r *attempt) cleanFar() {
	f := r.far
	if f == nil || f.keep {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), cleanTime)
	defer stop()
	switch err := f.clean(ctx, f); {
	case err == nil:
	case r.spec.External != nil:
		r.note(fmt.Sprintf("%s was not ended: %v%s", f.what, err, f.until))
	default:
		r.note(fmt.Sprintf("~/%s was not removed on %s: %v", f.dir, f.what, err))
	}
}
