package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// evaluate runs a command in the shell of its session.
func (c *command) evaluate() {
	sh := c.shell
	release := sync.OnceFunc(func() { sh.leave(c.turn) })
	defer release()
	select {
	case <-c.turn:
	case <-c.stop:
	}
	stdin, err := c.input()
	defer stdin.close()
	if err != nil {
		c.fail(*notStarted(codeCannot, "prepare the standard input: %v", err))
		return
	}
	if c.isStopped() {
		c.fail(*notStarted(codeCannot, "%v", errStopped))
		return
	}
	o, no := c.orderOf(stdin)
	if no == nil {
		no = sh.ready(c.setMain)
	}
	if no == nil {
		no = c.chooseDir(&o)
	}
	if no != nil {
		c.fail(*no)
		return
	}
	w := sh.warm
	var read, hold [2]*os.File
	for i := range read {
		if read[i], hold[i], err = w.stream(i); err != nil {
			closeAll(read[:], hold[:])
			c.fail(*notStarted(codeCannot, "%v", err))
			return
		}
	}
	o.out, o.err = w.fifos[0].path, w.fifos[1].path
	if err = stdin.forShell(w, c, &o); err != nil {
		closeAll(read[:], hold[:])
		c.fail(*notStarted(codeCannot, "prepare the standard input: %v", err))
		return
	}
	if !c.beginIn(w) {
		closeAll(read[:], hold[:])
		c.fail(*notStarted(codeCannot, "%v", errStopped))
		return
	}
	exit := wire.ExitMessage{Started: time.Now()}
	c.begun(exit.Started)
	drained := c.drain(read, w)
	stdin.feed(c)
	if err = w.order(w.talk.forCommand(o, w.last)); err == nil {
		c.deliverEarly()
		exit.Exit, exit.ShellEnded = c.await(w, o)
	} else {
		exit.Exit = *notStarted(codeCannot, "tell the shell: %v", err)
		c.finish()
		sh.drop()
	}
	exit.Ended = time.Now()
	c.close()
	for _, f := range hold {
		_ = f.Close()
	}
	for _, d := range drained.drains {
		d.Ended()
	}
	if c.stdin != nil {
		c.stdin.Fail()
	}
	c.killing.Wait()
	if d := sh.seen(); d != nil {
		exit.Dir = wire.Text(d.dir)
	}
	exit.Note = c.note
	c.judge(&exit)
	if exit.Exit.Started && exit.Exit.Signal == 0 {
		sh.status = exit.Exit.Code
	}
	_ = c.s.out.Message(wire.Exit, c.stream, exit)
	release()
	drained.Wait()
}

func closeAll(lists ...[]*os.File) {
	for _, files := range lists {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
}

// orderOf makes of a request what a shell can be told, or says why it cannot.
func (c *command) orderOf(stdin *input) (order, *jobs.Exit) {
	o := order{text: string(c.msg.Shell), in: os.DevNull, merge: c.msg.Merge}
	if o.text == "" {
		argv := wire.Strings(c.msg.Argv)
		if len(argv) == 0 || argv[0] == "" {
			return o, notStarted(codeNotFound, "no program is named")
		}
		o.text = quoteWords(argv)
	}
	if strings.ContainsRune(o.text, 0) {
		return o, notStarted(codeCannot, "an argument holds a NUL byte")
	}
	env := wire.Strings(c.msg.Env)
	if _, err := addEnv(nil, env); err != nil {
		return o, notStarted(codeCannot, "%v", err)
	}
	if stdin.file != "" {
		env = append(env, promptVar+"="+stdin.file)
		o.in = stdin.file
	}
	for i, e := range env {
		if name, _, _ := strings.Cut(e, "="); !isName(name) {
			return o, notStarted(codeCannot, "variable %d of the environment has a name that a shell does not know", i+1)
		}
	}
	o.env = append(env, c.mark)
	return o, nil
}

// chooseDir says where the command begins.
func (c *command) chooseDir(o *order) *jobs.Exit {
	d := c.shell.seen()
	o.options, o.status = d.options, c.shell.status
	o.dropTraps, _ = d.trapNames()
	dir := string(c.msg.Dir)
	if dir == "" {
		err := usableDir(d.dir)
		if err != nil && !c.shell.entered {
			return notStarted(codeCannot, "working directory %s, where sessions begin: %v; name another one", d.dir, reason(err))
		}
		at := d.dir
		if err != nil {
			at, c.note = c.s.place.besides(d.dir, err)
		}
		if c.shell.warm.moved(at) {
			o.dir, o.keepOld = at, true
		}
		c.shell.entered = true
		return nil
	}
	if strings.ContainsRune(dir, 0) {
		return notStarted(codeCannot, "the working directory's name holds a NUL byte")
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(d.dir, dir)
	}
	if err := usableDir(dir); err != nil {
		return notStarted(codeCannot, "working directory %s: %v", dir, reason(err))
	}
	o.dir = dir
	c.shell.entered = true
	return nil
}

// besides is where a command begins whose session's directory is gone: as in any
// shell it runs. That is the nearest parent that can be used, but rather HOME than
// the root directory.
func (p *place) besides(gone string, why error) (dir, note string) {
	for dir = filepath.Dir(gone); dir != "/" && usableDir(dir) != nil; {
		dir = filepath.Dir(dir)
	}
	if home := p.get("HOME"); dir == "/" && usableDir(home) == nil {
		dir = home
	}
	return dir, fmt.Sprintf("the session's directory %s is gone (%v); it goes on in %s", gone, reason(why), dir)
}

// await waits until the command has ended, and sees to the shell's state.
func (c *command) await(w *warm, o order) (exit jobs.Exit, shellEnded bool) {
	var d *dump
	var err error
	select {
	case b, ok := <-w.dumps:
		if ok {
			d, err = w.dump(b)
		}
		if ok && (err != nil || d.status != "exit") && c.finish() {
			return c.settle(w, o, d, err)
		}
	case <-w.dead:
	}
	// It has ended, or was told to.
	<-w.dead
	stopped := !c.finish()
	if d == nil || d.status != "exit" {
		d = w.lastWords()
	}
	if d != nil && !stopped {
		c.shell.adopt(d, o)
	}
	c.shell.drop()
	return exitOf(w.end.status), true
}

// settle takes the state that a command has left in its shell.
func (c *command) settle(w *warm, o order, d *dump, err error) (exit jobs.Exit, shellEnded bool) {
	sh := c.shell
	if err == nil && strings.HasPrefix(d.status, "cd") {
		return *notStarted(codeCannot, "working directory %s cannot be entered", o.dir), false
	}
	code := -1
	if err == nil && !strings.HasPrefix(d.status, "-") {
		code, err = strconv.Atoi(d.status)
	}
	if err != nil || code < 0 || code > 255 {
		sh.drop()
		return jobs.Exit{Started: true, Code: 1, Error: "the command has left its shell in a state that cannot be used"}, true
	}
	sh.see(d)
	exit = jobs.Exit{Started: true, Code: code}
	if _, trap := d.trapNames(); !trap {
		w.ended = ticks()
		return exit, false
	}
	// A trap for the end is for the end of its command.
	o.status = code
	if err := w.order(w.talk.leave(o)); err == nil && c.resume(w.pid) {
		<-w.dead
		c.finish()
		exit = exitOf(w.end.status)
	}
	sh.drop()
	return exit, false
}

// resume takes back that the command has ended; false is that it has been told
// to end.
func (c *command) resume(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid, c.over = pid, false
	if c.timer != nil {
		c.timer.Reset(time.Until(c.deadline))
	}
	return !c.stopped
}

// adopt takes the state of a shell that has ended by itself, but not what was
// there for one command only, nor the option that may have ended it.
func (sh *shell) adopt(d *dump, o order) {
	before := sh.seen()
	names := map[string]bool{}
	for _, e := range o.env {
		name, _, _ := strings.Cut(e, "=")
		names[name] = true
	}
	d.merge(before, sh.s.place.dialect(), names)
	d.status, d.options, d.traps, d.set = "", before.options, "", before.set
	sh.see(d)
}

// drained is the output of a command on its way.
type drained struct {
	sync.WaitGroup
	drains [2]*run.Drain
}

// drain begins to send the command's output.
func (c *command) drain(read [2]*os.File, w *warm) *drained {
	d := &drained{}
	for i, to := range []*wire.Sender{c.stdout, c.stderr} {
		d.drains[i] = run.NewDrain(read[i])
		busy := w.fifos[i].busy
		d.Go(func() {
			_ = d.drains[i].Copy(to)
			busy.Store(false)
			_ = to.Close()
		})
	}
	return d
}

// ticks is the time since the machine's start as /proc/PID/stat counts it, see
// proc(5): USER_HZ is 100 on everything that this runs on.
func ticks() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(t.Nano()) / 1e7
}

func pidSet(list string) map[int]bool {
	out := map[int]bool{}
	for f := range strings.FieldsSeq(list) {
		if pid, err := strconv.Atoi(f); err == nil {
			out[pid] = true
		}
	}
	return out
}
