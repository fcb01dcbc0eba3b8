package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/apptainer"
	"berth/internal/session"
	"berth/jobs"
	"berth/jobs/store"
)

// container is an open environment: the process that holds it and the session
// with the guest inside.
type container struct {
	r       *attempt
	proc    jobs.Process
	session *session.Session
	stderr  *tail
	fuse    []fuse        // the helpers that its file system lives in
	ended   chan struct{} // closed when proc has ended
	exit    jobs.Exit
	closing sync.Once
}

// openContainer starts the argv of the job script, holes filled, and waits for
// the guest's first word.
func (r *attempt) openContainer(ctx context.Context, argv []string) (*container, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_, _ = inR.Close(), inW.Close()
		return nil, err
	}
	c := &container{r: r, stderr: newTail(r.logFile, 4096), ended: make(chan struct{})}
	env := apptainer.Environ(os.Getenv, r.scratch.conf())
	if r.spec.Backend == jobs.BackendLocal {
		env = localEnviron(os.Getenv)
	}
	// The process lives until it is ended through the guest or by its PID
	// namespace, never by the end of a context: killing the container
	// program itself would leave its FUSE helpers behind.
	c.proc, err = r.on.Start(context.WithoutCancel(ctx), jobs.Cmd{Argv: argv, Dir: "/", Env: env, Stdin: inR, Stdout: outW, Stderr: c.stderr})
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		_, _ = inW.Close(), outR.Close()
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start " + argv[0], Err: err}
	}
	go func() {
		c.exit, _ = c.proc.Wait()
		close(c.ended)
	}()
	sctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		// A container that ends before the guest spoke closes its end of the
		// stream, and what it wrote there says more; unless a helper process
		// still holds it.
		select {
		case <-c.ended:
		case <-sctx.Done():
			return
		}
		select {
		case <-time.After(500 * time.Millisecond):
			cancel(errors.New("it ended before it spoke"))
		case <-sctx.Done():
		}
	}()
	c.session, err = session.Open(sctx, outR, inW, session.Options{
		StartTimeout: r.times.start, PingTimeout: r.times.guestWait, OwnPIDNamespace: r.spec.Backend != jobs.BackendLocal,
		Home: r.home(), User: r.spec.User,
	})
	if err != nil {
		c.forceEnd()
		_ = outR.Close()
		_ = inW.Close()
		return nil, c.startError(ctx, err)
	}
	c.fuse = findFuse()
	r.setSession(c.session)
	return c, nil
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

// startError says why no guest answered, in the words of the container
// program, which end on its standard error.
func (c *container) startError(ctx context.Context, err error) error {
	if w := c.r.stop.get(); w != nil || ctx.Err() != nil {
		return errStopped
	}
	msg := "the container did not start"
	if c.r.spec.Backend == jobs.BackendLocal {
		msg = "the guest did not start"
	}
	text := strings.TrimSpace(c.stderr.String())
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err}
	if text != "" {
		e.Err = errors.New(lastLines(text, 3))
	}
	switch {
	case strings.Contains(text, "currently in use by another process"):
		e.Kind, e.Hint = jobs.KindAgain, "another job has the overlay open; wait for it"
	case strings.Contains(text, "setgroups") || strings.Contains(text, "user namespace") || strings.Contains(text, "unprivileged"):
		e.Kind, e.Hint = jobs.KindConfig, "this node forbids user namespaces: ask the site for a setuid Apptainer, or for kernel.unprivileged_userns_clone / AppArmor settings"
	case strings.Contains(text, "fuse"):
		e.Kind, e.Hint = jobs.KindConfig, "FUSE does not work on this node: is /dev/fuse there, and are squashfuse and fuse-overlayfs installed?"
	default:
		e.Hint = "see " + filepath.Join(c.r.dir, store.FileRuntime)
	}
	return e
}

var errStopped = errors.New("stopped before the command began")

// close ends the container after its command has ended. It may be called more
// than once.
func (c *container) close() {
	c.closing.Do(func() {
		c.r.setSession(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.session.Quit(ctx)
		_ = c.session.Close()
		c.awaitEnd()
	})
}

// guestSilent is the guest's exit code when nobody has pinged it for too long;
// a container program passes it on.
const guestSilent = 4

// abandoned closes the container and tells whether its guest had left by
// itself. It ends the command then, and tells how that ended, which says
// nothing about the task.
func (c *container) abandoned() error {
	c.close()
	if c.exit.Code != guestSilent {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the guest has ended the command because nobody pinged it: this runner was stopped, or could not write to " + c.r.dir,
		Hint: "see " + filepath.Join(c.r.dir, store.FileRuntime)}
}

// awaitEnd waits for the container program to unmount and leave, and helps when
// it does not.
func (c *container) awaitEnd() {
	select {
	case <-c.ended:
	case <-time.After(3 * time.Second):
		c.forceEnd()
	}
	c.sweep()
}

// forceEnd kills what runs in the container, by its PID namespace, and lets
// the container program clean up; on the bare host it kills the tree.
func (c *container) forceEnd() {
	self := os.Getpid()
	if c.r.spec.Backend == jobs.BackendLocal {
		killAll(self, 5*time.Second)
	} else {
		killContainer(self)
	}
	select {
	case <-c.ended:
	case <-time.After(c.r.hurried(c.r.times.unmount)):
		c.r.log.Warn("the container program did not leave; killing what is left")
		killAll(self, 5*time.Second)
		<-c.ended
	}
}

// sweep ends what the container program has left behind: FUSE helpers that
// outlived it are children of the runner now.
func (c *container) sweep() {
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		alive := 0
		for _, p := range descendants(os.Getpid()) {
			if !p.zombie {
				alive++
			}
		}
		if alive == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left := killAll(os.Getpid(), 5*time.Second); left > 0 {
		c.r.note(fmt.Sprintf("%d processes could not be ended", left))
	}
}

// localEnviron is the environment of the guest on the bare host: an allow-list,
// so that tokens and agent sockets of whoever submitted do not reach the task.
func localEnviron(getenv func(string) string) []string {
	env := []string{}
	for _, n := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"} {
		if v := getenv(n); v != "" {
			env = append(env, n+"="+v)
		}
	}
	return env
}

// tail passes everything on and remembers the end of it. It may be read while
// it is written.
type tail struct {
	w   io.Writer
	max int

	mu  sync.Mutex
	buf []byte
}

func newTail(w io.Writer, limit int) *tail { return &tail{w: w, max: limit} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if n := len(t.buf) - t.max; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	t.mu.Unlock()
	return t.w.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
