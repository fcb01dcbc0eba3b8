package guest

import (
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// begun tells the client that the command has begun, and sets its time limit.
func (c *command) begun(at time.Time) {
	c.mu.Lock()
	if c.msg.Timeout > 0 && !c.over {
		c.deadline = at.Add(c.msg.Timeout)
		c.timer = time.AfterFunc(c.msg.Timeout, func() { c.s.guard(c.timeout) })
	}
	if c.msg.MaxMemory > 0 && !c.over {
		c.looking = time.AfterFunc(run.MemoryEvery, func() { c.s.guard(c.lookMemory) })
	}
	c.mu.Unlock()
	m := wire.StartedMessage{Time: at, PID: c.main(), Out: divert(c.stdout, c.msg.Out)}
	tell := func() { _ = c.s.out.Message(wire.Started, c.stream, m) }
	if m.Out || c.stdin != nil || c.msg.TTY != nil {
		tell() // the client waits for it
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.telling = time.AfterFunc(startedDelay, tell)
	}
}

// lookMemory looks at what the command has of the memory, and again in a second. One that has
// more than it may is killed, with all that it has started. A command that ends within a second
// costs a timer.
func (c *command) lookMemory() {
	pid := c.main()
	now := c.s.memory.Tree(pid, c.msg.Own == nil) // the first process of a room is the guest's
	c.mu.Lock()
	if c.over || c.stopped || pid == 0 {
		c.mu.Unlock()
		return
	}
	c.most = max(c.most, now)
	if now <= int64(c.msg.MaxMemory) {
		c.looking.Reset(run.MemoryEvery)
		c.mu.Unlock()
		return
	}
	c.tooMuch = true
	c.killing.Add(1)
	c.mu.Unlock()
	defer c.killing.Done()
	c.terminateNow(0)
}

// startedDelay is how long the beginning of a command may wait for its end,
// which tells it, too. A message more would wake everybody on the way, just
// when the command wants the processors.
const startedDelay = 3 * time.Millisecond

// finish notes that the main process has ended; false is that it was told to.
func (c *command) finish() (byItself bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shell != nil && c.stopped && c.pid != 0 {
		// The shell ends, too, and then there is another call.
		select {
		case <-c.shell.warm.dead:
		default:
			return false
		}
	}
	c.pid, c.over = 0, true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.looking != nil {
		c.looking.Stop()
	}
	if c.telling != nil {
		c.telling.Stop()
	}
	return !c.stopped
}

// close says that the main process has ended, or did not start.
func (c *command) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
}

// judge puts the guest's own doing into how a command ended. What it has
// started is gone when a time limit is told.
func (c *command) judge(exit *wire.ExitMessage) {
	c.mu.Lock()
	late := c.timedOut
	exit.Unpinged, exit.OverMemory = c.unpinged, c.tooMuch
	exit.MaxRSS = max(exit.MaxRSS, jobs.Bytes(c.most))
	c.mu.Unlock()
	if exit.OverMemory {
		c.killing.Wait()
		const killed = int(unix.SIGKILL)
		exit.Exit = jobs.Exit{Started: true, Code: 128 + killed, Signal: killed}
	}
	if late {
		c.killing.Wait()
		exit.TimedOut = true
		exit.Exit = jobs.Exit{Started: true, Code: codeTimeout}
	}
}
