package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// environ is the argument of a process that writes its environment to its
// standard output and ends.
const environ = "--environ"

const (
	maxEnviron = 1 << 20          // bytes
	scriptWait = 20 * time.Second // for all scripts
)

// sendEnviron writes the environment of this process, a NUL behind each.
func sendEnviron(to io.Writer) int {
	var b bytes.Buffer
	for _, e := range os.Environ() {
		b.WriteString(e + "\x00")
	}
	if _, err := to.Write(b.Bytes()); err != nil {
		return codeBroken
	}
	return codeQuit
}

// environment sets the environment of commands by the scripts of the image, and
// answers. The client asks for it when it has judged the guest's look, and before
// the first command.
func (s *server) environment(f wire.Frame) error {
	var m wire.EnvironMessage
	if err := f.Decode(&m); err != nil {
		return err
	}
	s.guard(func() {
		answer := wire.EnvironMessage{}
		if err := s.takeEnvironment(wire.Strings(m.Scripts)); err != nil {
			answer.Error = err.Error()
		}
		answer.Env = wire.Texts(s.place.env)
		_ = s.out.Message(wire.Environ, f.Stream, answer)
	})
	return nil
}

func (s *server) takeEnvironment(scripts []string) error {
	env, err := s.runScripts(scripts)
	if err != nil {
		return err
	}
	p, err := newPlace(env, s.homes, s.user)
	if err != nil {
		return err
	}
	p.login, p.dir = s.place.login, s.place.dir
	s.net.complete(&p)
	s.asks.complete(&p)
	s.place = p
	return nil
}

// runScripts has a shell of the image evaluate scripts, as confined as a command,
// and returns the variables that it then has. Nothing of it stays.
func (s *server) runScripts(scripts []string) (env []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := s.files.subdir()
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var text strings.Builder
	for i, script := range scripts {
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(name, []byte(script), 0o600); err != nil {
			return nil, err
		}
		text.WriteString(". " + quote(name) + "\n")
	}
	text.WriteString("exec " + quote(self))
	for _, a := range append(s.words, environ) {
		text.WriteString(" " + quote(a))
	}
	text.WriteString(" >&3\n")
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	pid, end, err := s.fork(func() (int, error) {
		return run.Fork("/bin/sh", []string{"sh", "-c", text.String()}, &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	})
	if err != nil {
		return nil, fmt.Errorf("start /bin/sh: %w", err)
	}
	_ = w.Close()
	said := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(r, maxEnviron+1))
		said <- b
	}()
	timer := time.NewTimer(scriptWait)
	defer timer.Stop()
	var status unix.WaitStatus
	select {
	case e := <-end:
		status = e.status
	case <-timer.C:
		err = fmt.Errorf("they did not end within %v", scriptWait)
		_ = s.reaper.signalGroup(pid, unix.SIGKILL)
	}
	s.killAll() // what they have left running
	if err != nil {
		return nil, err
	}
	if !status.Exited() || status.ExitStatus() != 0 {
		return nil, fmt.Errorf("/bin/sh ended with %d before their end", status.ExitStatus())
	}
	select {
	case b := <-said:
		return splitEnviron(b)
	case <-time.After(killWait):
		return nil, errors.New("something of them could not be ended")
	}
}

// splitEnviron reads what [sendEnviron] has written.
func splitEnviron(b []byte) ([]string, error) {
	if len(b) > maxEnviron {
		return nil, fmt.Errorf("they set more than %d bytes of variables", maxEnviron)
	}
	text, ok := strings.CutSuffix(string(b), "\x00")
	if !ok {
		return nil, errors.New("their variables could not be read")
	}
	return strings.Split(text, "\x00"), nil
}
