package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/internal/link/wire"
	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// warm is the process of a shell that waits for orders. The script of a POSIX
// shell is a FIFO that it opens itself: so its children do not inherit the
// descriptor. The FIFO has the shell's name, which thereby stands before its
// error messages.
type warm struct {
	pid    int
	talk   *dialect
	dir    string   // private to it
	script *os.File // of an sh: its orders
	calls  *os.File // of a bash: write end
	memo   *os.File // of a bash: the order, and behind it the dump; it never touches a disk
	sent   int64    // length of the order in memo
	notes  *os.File
	last   string        // of an sh: the FIFO that notes reads
	dumps  chan []byte   // whole dumps, as they are written
	dead   chan struct{} // closed when end is set
	end    reaped
	files  *privateDir
	made   int     // FIFOs
	fifos  [2]fifo // for standard output and error
	ended  uint64  // when the last command did, in ticks
}

// startWarm starts a shell, which will tell its state when it has evaluated
// restore.
func (s *server) startWarm(env []string, login bool, restore string) (w *warm, err error) {
	w = &warm{files: &s.files, talk: s.place.dialect(), dumps: make(chan []byte, 1), dead: make(chan struct{})}
	if w.dir, err = s.files.subdir(); err != nil {
		return nil, err
	}
	name := filepath.Base(s.place.shell)
	var theirs []*os.File
	defer func() {
		closeAll(theirs)
		if err != nil {
			w.release()
		}
	}()
	var dumpsW *os.File
	if w.talk.bash {
		w.notes, dumpsW, err = pipe()
	} else {
		dumpsW, err = w.openFifos(name)
	}
	if err != nil {
		return w, err
	}
	theirs = append(theirs, dumpsW)
	argv := []string{name, name}
	switch {
	case w.talk.bash && login:
		argv = []string{name, "-l", "-c", bashScript}
	case w.talk.bash:
		argv = []string{name, "--norc", "--noprofile", "-c", bashScript}
	case login:
		argv = []string{name, "-l", filepath.Join(w.dir, name)} // its profile may change the directory
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return w, err
	}
	theirs = append(theirs, null)
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	give := func(f *os.File, fd int) {
		for len(files) <= fd {
			files = append(files, ^uintptr(0))
		}
		files[fd] = f.Fd()
	}
	if w.talk.bash {
		if w.memo, err = memory("berth-orders"); err != nil {
			return w, err
		}
		var callsR *os.File
		if callsR, w.calls, err = os.Pipe(); err != nil {
			return w, err
		}
		theirs = append(theirs, callsR)
		give(callsR, callFD)
		give(w.memo, memoFD)
		give(dumpsW, noteFD)
	} else {
		give(dumpsW, shDumpFD)
	}
	pid, end, err := s.fork(func() (int, error) {
		return run.Fork(s.place.shell, argv, &syscall.ProcAttr{Dir: w.dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	})
	if err != nil {
		return w, err
	}
	w.pid = pid
	expendable(pid)
	s.guard(func() {
		w.end = <-end
		close(w.dead)
	})
	s.guard(w.read)
	if w.talk.bash {
		if _, err = w.calls.WriteString(bashLoop); err != nil {
			return w, err
		}
	}
	return w, w.order(w.talk.begin(restore, w.last))
}

// openFifos makes what an sh has in place of the pipes and the memory of a bash.
// Both are open for reading and writing here, so that no open waits for the
// other side, and no pipe ends with it.
func (w *warm) openFifos(name string) (dumpsW *os.File, err error) {
	script := filepath.Join(w.dir, name)
	if err = unix.Mkfifo(script, 0o600); err != nil {
		return nil, fmt.Errorf("make a FIFO: %w", err)
	}
	if w.script, err = os.OpenFile(script, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if w.last, err = w.mkfifo(); err != nil {
		return nil, err
	}
	if w.notes, err = os.OpenFile(w.last, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	return os.OpenFile(w.last, os.O_WRONLY, 0)
}

// memory makes a file that is on no disk. Secrets pass through it.
func memory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err == nil {
		return os.NewFile(uintptr(fd), name), nil
	}
	// Before Linux 3.17.
	fd, err = unix.Open("/dev/shm", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// order gives the shell something to do.
func (w *warm) order(text string) error {
	if !w.talk.bash {
		_, err := w.script.WriteString(text)
		return err
	}
	if err := w.memo.Truncate(0); err != nil {
		return err
	}
	if _, err := w.memo.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	// The shell has the same open file, and thereby the same position.
	if _, err := w.memo.Seek(0, 0); err != nil {
		return err
	}
	w.sent = int64(len(text))
	_, err := w.calls.WriteString("\n")
	return err
}

// maxDump bounds a shell's state.
const maxDump = 64 << 20

// read receives the dumps of a shell, or the notes that there is one.
func (w *warm) read() {
	var b []byte
	buf := make([]byte, 4<<10)
	notes := wire.NewPast(w.notes)
	for {
		n, err := notes.Read(buf)
		if n > 0 && w.talk.bash {
			select {
			case w.dumps <- nil:
			default: // forged: there is one order at a time
			}
		} else if n > 0 && len(b) < maxDump {
			b = append(b, buf[:n]...)
			if strings.HasSuffix(string(b[max(0, len(b)-5):]), "\x00end\x00") {
				select {
				case w.dumps <- b:
				default:
				}
				b = nil
			}
		}
		if err != nil {
			close(w.dumps)
			return
		}
	}
}

// dump reads a dump that was announced, or may be there.
func (w *warm) dump(b []byte) (*dump, error) {
	if w.talk.bash {
		fi, err := w.memo.Stat()
		if err != nil {
			return nil, err
		}
		n := fi.Size() - w.sent
		if n <= 0 || n > maxDump {
			return nil, errDump
		}
		b = make([]byte, n)
		if _, err := w.memo.ReadAt(b, w.sent); err != nil {
			return nil, err
		}
	}
	return splitDump(b)
}

// lastWords is the state that a shell has left which has ended by itself.
func (w *warm) lastWords() *dump {
	var b []byte
	if !w.talk.bash {
		// What it wrote is in the pipe; a child may hold that open.
		wire.EndPast(w.notes)
		b = <-w.dumps
	}
	if d, err := w.dump(b); err == nil && d.status == "exit" {
		return d
	}
	return nil
}

// release frees what the guest holds of a shell that has ended, or has not
// begun.
func (w *warm) release() {
	for _, f := range []*os.File{w.script, w.calls, w.memo, w.notes} {
		if f != nil {
			_ = f.Close()
		}
	}
	_ = os.RemoveAll(w.dir)
}
