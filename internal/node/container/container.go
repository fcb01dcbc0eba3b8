package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/apptainer/names"
	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Options say what to open, and how long things may take.
type Options struct {
	Opening *jobs.Opening
	On      jobs.Starter
	User    string // USER and LOGNAME where the environment has none
	Backend string // named when its guest does not start, where it is a program
	// Stderr takes what the container program says; never nil. A command can write
	// there, too: from the guest's first word on its lines are marked as coming from
	// inside, and bounded.
	Stderr io.Writer
	Log    *slog.Logger

	Start     time.Duration        // for the guest to speak
	GuestWait time.Duration        // the guest leaves after so long without a ping
	Unmount   func() time.Duration // for the container program to clean up; may change meanwhile
	// Stop is closed when the caller has a reason to end the container, and
	// Stopping asks for one that the channel does not know yet. Both may be
	// nil; a file system that ends then is not what ended the container.
	Stop     <-chan struct{}
	Stopping func() bool
	// TellEnv asks the guest for its environment, see [session.Guest].
	TellEnv bool
	// Began is called once the program runs and before its guest speaks; it
	// may be nil.
	Began func()
	// Isolated says that commands are to have no network but a loopback in a place that
	// contains nothing else: what must fail there is tried, and its files are not looked at.
	Isolated bool
	// Binds are what is mounted into the place for its user, and Allow the sockets that may be
	// reached there, see [jobs.Spec].
	Binds []jobs.Mount
	Allow []string
	// Network decides on the connections of commands, for which the guest prepares
	// NetworkWish; nil is that it has nothing to decide.
	Network     session.Network
	NetworkWish wire.NetworkWish
	// Ask answers what programs inside ask of berth; nil is that they find none.
	Ask   func(ctx context.Context, m wire.AskMessage) wire.AskAnswer
	Stubs []jobs.Stub // beside berth, which ask by their names
	// Note takes what people should know of the end; never nil.
	Note func(text string)
}

// Container is an open environment: the process that holds it and the session
// with the guest inside.
type Container struct {
	o        Options
	proc     jobs.Process
	session  *session.Session
	stderr   *tail
	fuse     []fuse // the helpers that its file system lives in
	answered provenance
	ended    chan struct{} // closed when proc has ended
	exit     jobs.Exit
	closing  sync.Once
}

// Open starts the program and waits for the guest's first word. When it fails,
// nothing runs any more. The error of a program that ended by itself has its
// last words; when ctx ended, it is the context's.
func Open(ctx context.Context, o Options) (*Container, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_, _ = inR.Close(), inW.Close()
		return nil, err
	}
	roomy(outR, 1<<20)
	roomy(inR, 256<<10) // frames of flows are as long as a usual pipe
	c := &Container{o: o, stderr: newTail(o.Stderr, 16<<10), ended: make(chan struct{})}
	// The process lives until it is ended through the guest or by its PID
	// namespace, never by the end of a context: killing the container
	// program itself would leave its FUSE helpers behind.
	c.proc, err = o.On.Start(context.WithoutCancel(ctx), jobs.Cmd{
		Argv: o.Opening.Argv, Dir: "/", Env: o.Opening.Env, OwnMounts: o.Opening.OwnMounts,
		Stdin: inR, Stdout: outW, Stderr: c.stderr,
	})
	if err != nil {
		_, _ = inR.Close(), outW.Close()
		_, _ = inW.Close(), outR.Close()
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "start " + o.Opening.Argv[0], Err: err}
	}
	// They are open here, too, until it is known who holds them inside. What is said
	// there ends with the program all the same.
	defer inR.Close()
	defer outW.Close()
	go func() {
		c.exit, _ = c.proc.Wait()
		close(c.ended)
		_ = outW.Close()
	}()
	if o.Began != nil {
		o.Began()
	}
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
	var said io.Reader = outR
	if o.Opening.Answer != nil {
		said = &answered{f: outR, answer: o.Opening.Answer}
	}
	var proof *wire.Proof
	if o.Isolated || o.Opening.Level == jobs.LevelEgress && o.Opening.Answer == nil { // a service's own network is its affair
		p := newProof()
		defer p.close()
		proof = p.wish
	}
	c.session, err = session.Open(sctx, said, inW, session.Options{
		StartTimeout: o.Start, PingTimeout: o.GuestWait, OwnPIDNamespace: o.Opening.OwnPIDNamespace,
		Home: o.Opening.Home, User: o.User, Login: o.Opening.Login, Dir: o.Opening.Dir, TellEnv: o.TellEnv, WritableRoot: o.Opening.WritableRoot,
		Look: o.Isolated || o.Opening.Level != "" && o.Opening.Level != jobs.LevelNone, Confine: confines(o.Opening),
		Network: o.Network, NetworkWish: o.NetworkWish, Ask: o.Ask, Stubs: o.Stubs, Proof: proof,
	})
	if err == nil {
		c.stderr.inside()
		c.answered, err = c.whoAnswered(sctx, inR, outW)
	}
	if err == nil && c.answered.streams {
		c.session.TakeFrom(c.answered.guest)
	}
	_ = outW.Close()
	switch {
	case err != nil:
	case o.Isolated:
		err = shut(c.session.Guest().Seen)
	default:
		if err = closed(c.session.Guest().Seen, o.Opening); err == nil {
			err = o.judge(c.session.Guest().Seen)
		}
	}
	if err == nil && len(o.Opening.Scripts) > 0 {
		if serr := c.session.Environment(sctx, o.Opening.Scripts); errors.Is(serr, session.ErrGuestGone) || sctx.Err() != nil {
			err = serr
		} else if serr != nil {
			o.Note("the variables that the image sets are left out: its scripts in " + jobs.BuildEnv + ": " + serr.Error())
		}
	}
	if err != nil {
		c.ForceEnd()
		_ = outR.Close()
		_ = inW.Close()
		c.endOpening()
		return nil, c.startError(ctx, err)
	}
	c.fuse = findFuse()
	return c, nil
}

// confines tells whether commands have less than the guest: in a container of
// this machine's. A service's sandbox has rules of its own, and programs such as
// sudo work in it.
func confines(o *jobs.Opening) bool {
	return o.Level != "" && o.Level != jobs.LevelNone && o.Answer == nil
}

// answered is the output of a program that has something to say before its guest
// does: the first one to read gets to know what that was.
type answered struct {
	f      *os.File
	answer func(io.Reader) error
}

// Close closes the stream.
func (a *answered) Close() error { return a.f.Close() }

// Read reads what comes after the answer.
func (a *answered) Read(b []byte) (int, error) {
	if a.answer != nil {
		if err := a.answer(a.f); err != nil {
			return 0, err
		}
		a.answer = nil
	}
	return a.f.Read(b)
}

// startError says why no guest answered, in the words of the container
// program, which end on its standard error.
func (c *Container) startError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var no *session.NotWritableError
	if errors.As(err, &no) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container's writable layer is not writable", Err: no,
			Hint: "the container program has mounted it read-only and gone on: " +
				"are its files yours, with a mode that lets you write, on a file system that is writable here? berth doctor looks at this node"}
	}
	if errors.As(err, new(*session.NoRoomError)) {
		return err
	}
	if jobs.KindOf(err) == jobs.KindConfig || c.o.Opening.Answer != nil && jobs.KindOf(err) != jobs.KindUnknown {
		return err
	}
	var cgroups *session.CgroupError
	if errors.As(err, &cgroups) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container is not closed: it can write the machine's cgroups, at " + cgroups.At,
			Hint: "leave that out of the task's mounts; " +
				"if the task has no such mount, the site's container program adds it (" +
				names.BindPathSetting + "): ask the site to take it out"}
	}
	msg := "the container did not start"
	if !c.o.Opening.OwnPIDNamespace {
		msg = "the guest did not start"
	}
	if c.o.Opening.Answer != nil {
		msg += " in the sandbox of the backend " + c.o.Backend
	}
	text := c.troubles()
	if text == "" {
		text = strings.TrimSpace(c.stderr.String())
	}
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: msg, Err: err}
	if text != "" {
		e.Err = errors.New(lastLines(text, 3))
		if c.o.Opening.Explain != nil {
			if x := c.o.Opening.Explain(ctx, text); x != nil {
				if x.Msg != "" {
					e.Err = fmt.Errorf("%w (%s)", e.Err, x.Msg)
				}
				e.Kind, e.Blame, e.Hint = x.Kind, x.Blame, x.Hint
			}
		}
	}
	return e
}

// Session is the conversation with the guest inside.
func (c *Container) Session() *session.Session { return c.session }

// Ended is closed when the container program has ended.
func (c *Container) Ended() <-chan struct{} { return c.ended }

// troubles is what the container program has said, without its remarks, until the
// guest spoke.
func (c *Container) troubles() string {
	var kept []string
	for line := range strings.Lines(c.stderr.String()) {
		if l := strings.TrimSpace(line); l != "" && !strings.HasPrefix(l, "INFO:") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "\n")
}

// Close ends everything in the container and returns when the program has
// unmounted it and left. It may be called more than once.
func (c *Container) Close() {
	c.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.session.Quit(ctx)
		_ = c.session.Close()
		c.awaitEnd()
		c.endOpening()
	})
}

// endOpening asks the backend for what this process cannot see.
func (c *Container) endOpening() {
	if c.o.Opening.End == nil {
		return
	}
	limit := c.o.Opening.EndTime
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.o.Opening.End(ctx); err != nil {
		c.o.Log.Warn("the backend could not make sure that nothing runs", "err", err)
		c.o.Note("something of it may still run: " + err.Error())
	}
}

// guestSilent is the guest's exit code when no ping came for too long;
// a container program passes it on.
const guestSilent = 4

// Abandoned closes the container and tells whether its guest had left by
// itself because no ping came.
func (c *Container) Abandoned() bool {
	c.Close()
	return c.exit.Code == guestSilent
}

// GuestKilled closes the container and returns the signal that has ended its
// guest, while the init of its PID namespace lived on and told so by the exit
// code, as a shell does; 0 is none. Without a namespace of its own nothing tells.
func (c *Container) GuestKilled() int {
	c.Close()
	if !c.o.Opening.OwnPIDNamespace || c.o.Opening.Init != nil || c.exit.Signal != 0 {
		return 0 // with Init the guest is the first process, which nothing inside can kill
	}
	switch sig := syscall.Signal(c.exit.Code - 128); sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT:
		return int(sig)
	}
	return 0
}

// awaitEnd waits for the container program to unmount and leave, and helps when
// it does not.
func (c *Container) awaitEnd() {
	select {
	case <-c.ended:
	case <-time.After(3 * time.Second):
		c.ForceEnd()
	}
	c.sweep()
}

// ForceEnd kills what runs in the container, by its PID namespace, and lets
// the container program clean up; on the bare host it kills the tree. It
// returns when the program has left.
func (c *Container) ForceEnd() {
	self := os.Getpid()
	if c.o.Opening.OwnPIDNamespace {
		if KillContainer(self) == 0 && c.o.Opening.End != nil {
			c.endOpening() // its processes are not below this one
		}
	} else {
		KillAll(self, 5*time.Second)
	}
	select {
	case <-c.ended:
	case <-time.After(c.o.Unmount()):
		c.o.Log.Warn("the container program did not leave; killing what is left")
		KillAll(self, 5*time.Second)
		<-c.ended
	}
}

// sweep ends what the container program has left behind: FUSE helpers that
// outlived it are children of this process now.
func (c *Container) sweep() {
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		alive := 0
		for _, p := range run.Below(os.Getpid()) {
			if !p.Zombie {
				alive++
			}
		}
		if alive == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left := KillAll(os.Getpid(), 5*time.Second); left > 0 {
		c.o.Note(fmt.Sprintf("%d processes could not be ended", left))
	}
}
