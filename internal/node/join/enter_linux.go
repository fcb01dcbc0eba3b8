package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/apptainer/names"
	"berth/internal/node/container"
	"berth/internal/node/guest"
	"berth/internal/node/supervise"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

func lines(b []byte) iter.Seq[string] { return strings.Lines(string(b)) }

// guestPath is the guest's program in the process that becomes it: /proc is one
// of the container's mounts, and shows that process there.
const guestPath = "/proc/self/fd/3"

// program is a process to start: the guest, or what brings it to its place.
type program struct {
	argv    []string
	env     []string
	dir     string
	guest   *os.File    // inherited as descriptor 3, or nil
	room    []*os.File  // namespaces that are entered in a second step; inherited behind it
	alive   func() bool // tells whether its place is still there
	release func()
}

// namespaces are those that a container may have of its own, with the options
// of nsenter(1) for them.
var namespaces = []struct{ name, option string }{
	{"user", "--user="}, {"mnt", "--mount="}, {"pid", "--pid="}, {"ipc", "--ipc="}, {"uts", "--uts="}, {"net", "--net="}, {"cgroup", "--cgroup="},
}

// entering is the guest in the namespaces of a container's init. They are held
// by descriptors of this process, and the init is looked at again once they are
// open: whoever has its number later is not entered.
func entering(t *target) (*program, error) {
	nsenter, err := lookup("nsenter")
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "nsenter is not on " + t.init.Host,
			Hint: "it is part of util-linux; without it a container that is open cannot be entered"}
	}
	var held []*os.File
	p := &program{
		argv: []string{nsenter}, env: []string{"PATH=" + searchPath, "LC_ALL=C"}, dir: "/",
		alive: func() bool { return lease.StartTime(t.init.PID) == t.init.Start },
	}
	p.release = func() {
		for _, f := range held {
			_ = f.Close()
		}
	}
	own, err := p.enter(t, t.init.PID, func(f *os.File) string {
		held = append(held, f)
		// By way of this process: what nsenter inherited, the guest would too.
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	})
	if err == nil && t.room.PID != 0 {
		// In a second step: what the room has not of its own belongs to the container's
		// user. From there this process cannot be seen, and the files are inherited.
		p.argv = append(p.argv, "--preserve-credentials", "--", nsenter)
		_, err = p.enter(t, t.room.PID, func(f *os.File) string {
			held, p.room = append(held, f), append(p.room, f)
			return fmt.Sprintf("/proc/self/fd/%d", 3+len(p.room))
		})
	}
	if err != nil {
		p.release()
		return nil, err
	}
	switch {
	case !p.alive() || t.room.PID != 0 && lease.StartTime(t.room.PID) != t.room.Start:
		err = &jobs.Error{Kind: jobs.KindAgain, Msg: "the container has just ended", Hint: "berth status " + jobs.Short(t.spec.ID)}
	case !own["mnt"] || !own["pid"]:
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("process %d is not in a container", t.init.PID),
			Hint: "berth status " + jobs.Short(t.spec.ID)}
	case os.Geteuid() == 0:
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: "root does not join a container: a program there would have more rights than its task",
			Hint: "submit jobs as an ordinary user"}
	case !own["user"]:
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: names.WasSetuid + ": only root can enter it",
			Hint: names.NoSetuid + "; berth logs -f " + jobs.Short(t.spec.ID) + " shows what the task writes"}
	default:
		p.guest, err = copyOfSelf()
	}
	if err != nil {
		p.release()
		return nil, err
	}
	held = append(held, p.guest)
	p.argv = append(p.argv, "--preserve-credentials", "--", guestPath, "guest", guest.Joined)
	return p, nil
}

// enter adds the options of nsenter(1) for the namespaces of a process that this one, or
// the container that is entered before, is not in. name keeps a file and names it.
func (p *program) enter(t *target, pid int, name func(*os.File) string) (own map[string]bool, err error) {
	own = map[string]bool{}
	for _, ns := range namespaces {
		path := fmt.Sprintf("/proc/%d/ns/%s", pid, ns.name)
		theirs, err := os.Readlink(path)
		from := "/proc/self/ns/" + ns.name
		if pid != t.init.PID {
			from = fmt.Sprintf("/proc/%d/ns/%s", t.init.PID, ns.name)
		}
		ours, oerr := os.Readlink(from)
		if errors.Is(err, os.ErrNotExist) && errors.Is(oerr, os.ErrNotExist) {
			continue // this kernel has no such
		}
		if pid == t.init.PID && t.room.PID != 0 && (ns.name == "mnt" || ns.name == "pid" || ns.name == "net") {
			own[ns.name] = theirs != ours // the room's are entered at once
			continue
		}
		var f *os.File
		if err == nil && oerr == nil && theirs != ours {
			f, err = os.Open(path)
		}
		if err := errors.Join(err, oerr); err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look at the container's namespaces", Err: err,
				Hint: "did it just end? berth status " + jobs.Short(t.spec.ID)}
		}
		if f != nil {
			own[ns.name] = true
			p.argv = append(p.argv, ns.option+name(f))
		}
	}
	return own, nil
}

// searchPath is where programs of the system are: a step of a job may have no
// PATH.
const searchPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

func lookup(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for dir := range strings.SplitSeq(searchPath, ":") {
		if p, err := exec.LookPath(dir + "/" + name); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// copyOfSelf is this program in memory, sealed.
func copyOfSelf() (*os.File, error) {
	const mfdExec = 0x10 // Linux 6.3: memfd_create(2)
	fail := func(err error) (*os.File, error) {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "copy the guest's program into memory", Err: err}
	}
	fd, err := unix.MemfdCreate("berth-node", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdExec)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("berth-node", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), "berth-node")
	self, err := os.Open("/proc/self/exe")
	if err == nil {
		_, err = io.Copy(f, self)
		_ = self.Close()
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		_ = f.Close()
		return fail(err)
	}
	return f, nil
}

// pipes are the standard streams of the process, and their other ends.
type pipes struct{ theirs, ours [3]*os.File }

func newPipes() (*pipes, error) {
	p := &pipes{}
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			p.close(p.theirs)
			p.close(p.ours)
			return nil, err
		}
		if p.theirs[i], p.ours[i] = r, w; i > 0 {
			p.theirs[i], p.ours[i] = w, r
		}
	}
	return p, nil
}

func (*pipes) close(files [3]*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// endWait is how long the process may take to end by itself when its place, or
// its client, is gone.
const endWait = 15 * time.Second

// pass runs the program to its end with its streams joined to ours, and returns
// its exit code.
func (p *program) pass(stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	defer p.release()
	ps, err := newPipes()
	if err != nil {
		return 0, err
	}
	defer ps.close(ps.ours)
	attr := &syscall.ProcAttr{Dir: p.dir, Env: p.env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, f := range ps.theirs {
		attr.Files = append(attr.Files, f.Fd())
	}
	if p.guest != nil {
		attr.Files = append(attr.Files, p.guest.Fd())
	}
	for _, f := range p.room {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := fork(p.argv, attr, p.guest != nil)
	ps.close(ps.theirs)
	if err != nil {
		return 0, &jobs.Error{Kind: jobs.KindInfra, Msg: "start " + p.argv[0], Err: err}
	}
	var code int
	ended := make(chan struct{})
	go func() {
		code = reap(pid)
		close(ended)
	}()
	go func() {
		copyThrough(ps.ours[0], stdin)
		_ = ps.ours[0].Close() // the guest ends what it has started, and leaves
	}()
	var out sync.WaitGroup
	out.Go(func() { copyThrough(stdout, ps.ours[1]) })
	out.Go(func() { copyThrough(stderr, ps.ours[2]) })

	// One whose place is gone is told so by the end of its input, and killed if it
	// does not heed that.
	var lost supervise.Stop[struct{}]
	look, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go container.Look(look, func() bool { return p.alive() || !lost.Set(struct{}{}) })
	supervise.Await(ended, lost.Done(), func() time.Duration {
		_ = ps.ours[0].Close()
		return endWait
	}, func() { _ = unix.Kill(pid, unix.SIGKILL) })
	done := make(chan struct{})
	go func() {
		out.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(endWait): // a process still holds the pipes, or there is no reader
	}
	return code, nil
}

// reap waits for the end of a process, and lets it go on when it has stopped:
// nsenter stops when its child does, which a task can bring about, and a
// namespace ends only when nsenter has seen its child's end. So the job's end
// would wait for it.
func reap(pid int) (code int) {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err == nil && ws.Stopped():
			time.Sleep(stopped)
			_ = unix.Kill(pid, unix.SIGCONT)
		case ws.Signaled():
			return 128 + int(ws.Signal())
		default:
			return ws.ExitStatus()
		}
	}
}

// stopped is how long it is left so: a task that stops it again and again is to
// cost little.
const stopped = 100 * time.Millisecond

// fork starts a process; a humble one can gain no privileges by an exec, and
// neither can what it starts.
func fork(argv []string, attr *syscall.ProcAttr, humble bool) (int, error) {
	if !humble {
		return run.Fork(argv[0], argv, attr)
	}
	type answer struct {
		pid int
		err error
	}
	c := make(chan answer)
	go func() {
		// The attribute is the thread's, and is inherited; the thread ends with
		// this goroutine.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			c <- answer{0, err}
			return
		}
		pid, err := run.Fork(argv[0], argv, attr)
		c <- answer{pid, err}
	}()
	a := <-c
	return a.pid, a.err
}

// copyThrough copies bytes as they come. The wrappers keep io.Copy from asking
// the kernel to splice, which holds a byte back until a pipe is full on some.
func copyThrough(to io.Writer, from io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
}
