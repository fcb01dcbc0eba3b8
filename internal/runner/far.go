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

// farJobs is where the work trees of jobs stand on a host of backend ssh, below
// the home there.
const farJobs = ".local/state/berth/ssh/jobs"

// far is the host of a job of backend ssh. There is no file system between it
// and this machine, so the work tree goes there before a command and comes back
// after it.
type far struct {
	host *ssh.Host
	argv []string // runs the guest there
	dir  string   // of this attempt there, below the home
	made bool     // it may be there
	keep bool     // what is there did not come back
}

// newFar puts the program on the host.
func (r *attempt) newFar(ctx context.Context) (*far, error) {
	if r.spec.SSH == nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the job names no host of ssh"}
	}
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
	return &far{host: h, argv: argv, dir: path.Join(farJobs, r.info.ID)}, nil
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
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree to %s", r.far.host), Err: err, Hint: jobs.HintOf(err)}
	}
	return nil
}

// Bounds of what is done on the host after the command.
const (
	fetchTime = 10 * time.Minute
	cleanTime = time.Minute
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
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("copy the work tree back from %s, where it is kept in ~/%s/work", r.far.host, r.far.dir), Err: err}
	}
	return nil
}

// clean removes what the attempt has on the host.
func (f *far) clean() error {
	if !f.made || f.keep {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), cleanTime)
	defer stop()
	p, err := f.host.Start(ctx, jobs.Cmd{Argv: []string{"/bin/sh", "-c", `chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"`, "sh", f.dir}})
	if err != nil {
		return err
	}
	e, err := p.Wait()
	if err == nil && !e.OK() {
		err = errors.New(e.String())
	}
	return err
}
