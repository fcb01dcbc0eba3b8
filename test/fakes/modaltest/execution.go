package modaltest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// execution is a command in a sandbox.
type execution struct {
	pidFile  string
	in       *os.File // our end of its input
	out, err *output

	write sync.Mutex // one writer of the input at a time

	mu      sync.Mutex
	written uint64 // bytes of its input that it was given
	closed  bool   // its input
	evict   context.CancelFunc
	exit    *jobs.Exit
	done    chan struct{}
}

// output keeps what a command writes, and gives it to any number of readers.
type output struct {
	mu   sync.Mutex
	file *os.File
	size int64
	over bool
	more chan struct{} // closed and renewed when there is more
}

func (s *Server) newOutput() (*output, error) {
	f, err := s.logFile()
	return &output{file: f, more: make(chan struct{})}, err
}

// fill copies from a pipe until no process can write to it any more.
func (o *output) fill(r *os.File) {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		o.mu.Lock()
		if n > 0 {
			_, _ = o.file.WriteAt(buf[:n], o.size)
			o.size += int64(n)
		}
		o.over = err != nil
		close(o.more)
		o.more = make(chan struct{})
		o.mu.Unlock()
		if err != nil {
			_ = r.Close()
			return
		}
	}
}

// next is what stands at an offset. Nothing and no error is the end.
func (o *output) next(ctx context.Context, at int64) ([]byte, error) {
	for {
		o.mu.Lock()
		size, over, more := o.size, o.over, o.more
		o.mu.Unlock()
		if at < size {
			b := make([]byte, min(size-at, 256<<10))
			_, err := o.file.ReadAt(b, at)
			return b, err
		}
		if over {
			return nil, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin starts a command. Its process writes its number down before it becomes the
// command.
func (s *Server) begin(b *Sandbox, argv []string, dir string, env []string, limit time.Duration, wantOut, wantErr bool) (*execution, error) {
	x := &execution{done: make(chan struct{})}
	f, err := os.CreateTemp(s.dir, "pid-")
	if err != nil {
		return nil, err
	}
	x.pidFile = f.Name()
	_ = f.Close()
	cmd := jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", `echo $$ >"$1"; shift; exec "$@"`, "sh", x.pidFile}, argv...), Dir: b.Dir}
	if dir != "" {
		cmd.Dir = dir
	}
	path := os.Getenv("PATH")
	cmd.Env = append([]string{"HOME=" + b.Dir, "PATH=" + path, "MODAL_TASK_ID=" + b.Task, "MODAL_SANDBOX_ID=" + b.ID}, b.env...)
	cmd.Env = append(cmd.Env, env...)
	var theirs []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	if x.out, err = s.newOutput(); err != nil {
		return nil, err
	}
	if x.err, err = s.newOutput(); err != nil {
		return nil, err
	}
	in, w := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		return nil, err
	}
	x.in, theirs = w, append(theirs, in, outW, errW)
	cmd.Stdin = in
	if wantOut {
		cmd.Stdout = outW
	}
	if wantErr {
		cmd.Stderr = errW
	}
	p, err := run.Local{}.Start(context.Background(), cmd)
	for _, f := range theirs {
		_ = f.Close()
	}
	go x.out.fill(outR)
	go x.err.fill(errR)
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	var timer *time.Timer
	if limit > 0 {
		timer = time.AfterFunc(limit, func() { _ = p.Signal(syscall.SIGKILL) })
	}
	go func() {
		exit, _ := p.Wait()
		if timer != nil {
			timer.Stop()
		}
		x.mu.Lock()
		x.exit = &exit
		x.mu.Unlock()
		close(x.done)
		_ = os.Remove(x.pidFile)
		b.watchIdle(s)
	}()
	return x, nil
}

func (x *execution) pid() int {
	text, _ := os.ReadFile(x.pidFile)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func (x *execution) over() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.exit != nil
}
