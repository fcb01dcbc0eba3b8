package guest

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// promptVar tells a command where its prompt is.
const promptVar = "BERTH_PROMPT_FILE"

// input is a command's standard input.
type input struct {
	child  *os.File // what the command gets, or nil
	ours   *os.File // what the guest writes to, or nil
	file   string   // where the prompt is, or ""
	fifo   string   // what a shell opens, or ""
	shared bool     // ours is where the output comes from, too
	fed    sync.WaitGroup

	mu  sync.Mutex
	met chan struct{} // closed when the shell has opened fifo, or this is not waited for
}

// input prepares the standard input. A prompt is received to its end first, and
// the command reads the file itself: nothing hangs when it does not.
func (c *command) input() (*input, error) {
	in := &input{}
	var err error
	switch {
	case c.prompt != nil:
		var f *os.File
		f, err = c.s.files.create("prompt-" + strconv.FormatUint(uint64(c.stream), 10) + ".md")
		w := io.Writer(f)
		if err != nil {
			w = io.Discard // the client sends it to its end in any case
		}
		derr := c.prompt.Drain(w, c.s.out.Credits(wire.PromptData, c.stream))
		if err == nil {
			err = errors.Join(derr, f.Close())
			in.file = f.Name()
		}
		if err == nil {
			in.child, err = os.Open(in.file)
		}
	case c.msg.TTY != nil || c.shell != nil:
		// Its terminal, and what its shell opens, come later.
	case c.stdin != nil:
		var fd [2]int
		if err = unix.Pipe2(fd[:], unix.O_CLOEXEC); err == nil {
			_ = unix.SetNonblock(fd[1], true)
			in.child, in.ours = os.NewFile(uintptr(fd[0]), "stdin"), os.NewFile(uintptr(fd[1]), "stdin")
		}
	default:
		in.child, err = os.Open(os.DevNull)
	}
	return in, err
}

// feed begins to write what the client sends to the command. A command that
// closes its input, or ends, makes the rest be thrown away.
func (in *input) feed(c *command) {
	if in.child != nil {
		_ = in.child.Close()
	}
	if in.ours == nil && in.fifo == "" {
		return
	}
	if in.fifo != "" {
		in.met = make(chan struct{})
	}
	in.fed.Add(1)
	c.s.guard(func() {
		defer in.fed.Done()
		w := in.ours
		if in.met != nil {
			w = in.meet()
		}
		_ = c.stdin.Drain(w, c.s.out.Credits(wire.Stdin, c.stream))
		if !in.shared {
			_ = w.Close()
		}
	})
}

// terminal makes a terminal the input; its output ends it.
func (in *input) terminal(f *os.File) { in.ours, in.shared = f, true }

// forShell makes a FIFO that the shell of a session opens as the command's
// input.
func (in *input) forShell(w *warm, c *command, o *order) (err error) {
	if c.stdin == nil {
		return nil
	}
	if in.fifo, err = w.mkfifo(); err == nil {
		o.in = in.fifo
	}
	return err
}

// meet opens the FIFO when the shell does, see fifo(7): no earlier, because
// what is written and closed before is lost.
func (in *input) meet() *os.File {
	fd, err := unix.Open(in.fifo, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	var f *os.File // every write to it fails
	if err == nil {
		_ = unix.SetNonblock(fd, true)
		f = os.NewFile(uintptr(fd), in.fifo)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ours = f
	close(in.met)
	return f
}

// part makes meet return though the shell has not come.
func (in *input) part() {
	for {
		fd, err := reading(in.fifo)
		select {
		case <-in.met:
		case <-time.After(time.Millisecond):
		}
		if err == nil {
			_ = unix.Close(fd)
		}
		select {
		case <-in.met:
			return
		default:
		}
		if err != nil {
			return // the task has removed it: no reader can open it
		}
	}
}

// close releases what the input still holds.
func (in *input) close() {
	if in.child != nil {
		_ = in.child.Close()
	}
	if in.met != nil {
		in.part()
	}
	in.mu.Lock()
	ours := in.ours
	in.mu.Unlock()
	if ours != nil {
		_ = ours.Close() // wakes a write to a command that has ended
		in.fed.Wait()
	}
	for _, path := range []string{in.file, in.fifo} {
		if path != "" {
			_ = os.Remove(path)
		}
	}
}
