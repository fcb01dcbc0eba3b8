package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/apptainer"
	"berth/backends/docker"
	"berth/backends/local"
	"berth/internal/container"
	"berth/internal/lease"
	"berth/jobs"
	"berth/jobs/store"
)

var errStopped = errors.New("stopped before the command began")

// openContainer starts the argv of the job script, holes filled, and waits for
// the guest's first word.
func (r *attempt) openContainer(ctx context.Context, argv []string) (*container.Container, error) {
	bare := r.spec.Backend == jobs.BackendLocal
	opening := &jobs.Opening{Argv: argv, Env: apptainer.Environ(os.Getenv, r.scratch.Conf()), OwnPIDNamespace: !bare, Home: r.home(), OwnMounts: r.spec.Backend == jobs.BackendSingularity && r.spec.Overlay.Driver == jobs.DriverKernel}
	opening.Level = r.spec.Level
	opening.WritableRoot = r.spec.Backend == jobs.BackendSingularity
	switch {
	case r.far != nil:
		far := r.far.opening
		opening.Env, opening.OwnPIDNamespace, opening.Home, opening.Answer = far.Env, false, far.Home, far.Answer
	case bare:
		opening.Env = local.Environ(os.Getenv)
	case r.docker != nil:
		opening.Env, opening.End = r.docker.Env, r.docker.Gone
	}
	c, err := container.Open(ctx, container.Options{
		Opening: opening, On: r.on, User: r.spec.User, Backend: r.spec.Backend, Stderr: r.logFile, Log: r.log,
		Start: r.times.start, GuestWait: r.times.guestWait, Unmount: func() time.Duration { return r.hurried(r.times.unmount) },
		Stop: r.stop.done, Stopping: func() bool { return store.Cancelled(r.jobDir) }, Note: r.note, TellEnv: r.far == nil,
	})
	if err != nil {
		if r.stop.get() != nil || ctx.Err() != nil {
			return nil, errStopped
		}
		if r.docker != nil && jobs.HintOf(err) == "" {
			kind, hint := docker.StartTrouble(err.Error())
			err = &jobs.Error{Kind: kind, Err: err, Hint: hint}
		}
		if jobs.HintOf(err) == "" {
			err = &jobs.Error{Kind: jobs.KindOf(err), Err: err, Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
		}
		return nil, err
	}
	if r.docker != nil {
		r.box = container.OwnCgroup(filepath.Join("/proc", strconv.Itoa(r.docker.PID(ctx)), "cgroup"), "/sys/fs/cgroup")
	}
	r.setSession(c.Session())
	return c, nil
}

// recordInside tells others how to come into the task's place, in which its
// command has the variables task. A task runs without it, too. Of several tasks
// the first one's place is recorded.
func (r *attempt) recordInside(c *container.Container, task []string) {
	if r.far != nil {
		return // nobody joins it there, and its environment is the host's
	}
	g, self := c.Session().Guest(), lease.Self()
	in := jobs.Inside{Version: 1, Env: g.Env, Task: task, Home: g.Home, Dir: r.workDir(c),
		Host: self.Host, BootID: self.BootID, PID: self.PID, Start: self.Start, Node: os.Getenv("SLURMD_NODENAME"), Image: r.image}
	if _, err := store.SetInside(r.dir, in); err != nil {
		r.log.Warn("the place of the task could not be recorded; berth shell will not find it", "err", err)
	}
}

// oomKills counts the processes of the task that the kernel has killed for
// memory.
func (r *attempt) oomKills() int {
	return r.jobCgroup.OOMKills() - r.ooms + max(r.boxOOMs, r.box.OOMKills())
}

// home is what HOME is to be inside: the user's own path, which password
// lookups inside name too, but made anew on the writable layer. On the bare
// host it is the real one.
func (r *attempt) home() string {
	if h := os.Getenv("HOME"); filepath.IsAbs(h) {
		return h
	}
	return "/home/" + r.spec.User
}

// close ends the container; nobody pings its guest any more.
func (r *attempt) close(c *container.Container) {
	r.setSession(nil)
	c.Close()
}

// abandoned closes the container and tells whether its guest had left by
// itself. It ends the command then, and tells how that ended, which says
// nothing about the task.
func (r *attempt) abandoned(c *container.Container) error {
	r.setSession(nil)
	if !c.Abandoned() {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the guest has ended the command because nobody pinged it: this runner was stopped, or could not write to " + r.dir,
		Hint: "see " + filepath.Join(r.dir, store.FileRuntime)}
}

// lostFuse is the reason to stop when a part of the container's file system
// has ended.
func (r *attempt) lostFuse(name string) why {
	return why{state: jobs.StateError, fuse: true, reason: "the container's file system died (" + name + " ended): what the command wrote may be lost",
		hint: "was the node out of memory? ask for more, or see " + r.dir}
}

// fileSystemGone tells whether a command could not be started because what
// serves the container's files had died, so early that nobody knew of it: the
// kernel's words for that, which the guest passes on, are no doing of the task's.
func fileSystemGone(e jobs.Exit) bool {
	if e.Started {
		return false
	}
	for _, errno := range []syscall.Errno{syscall.ENOTCONN, syscall.ESTALE, syscall.EIO} {
		if strings.HasSuffix(e.Error, ": "+errno.Error()) || e.Error == errno.Error() {
			return true
		}
	}
	return false
}
