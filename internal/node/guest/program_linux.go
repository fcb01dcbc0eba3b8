package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/link/wire"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// Codes of a command that did not start, as a shell has them.
const (
	codeCannot   = 126
	codeNotFound = 127
	codeTimeout  = 124 // as timeout(1) says it
)

func notStarted(code int, format string, args ...any) *jobs.Exit {
	return &jobs.Exit{Code: code, Error: fmt.Sprintf(format, args...)}
}

// program is a command that is ready to be started.
type program struct {
	path string
	argv []string
	env  []string
	dir  string
	// memo is what the program reads on descriptor memoFD, or nil.
	memo   *os.File
	memoFD int
	text   string   // of memo
	own    *ownRoom // in which it runs, or nil
}

func (p *program) close() {
	if p.memo != nil {
		_ = p.memo.Close()
	}
	p.own.close()
}

// resolve turns a request into a program, or says why it cannot start.
func (p *place) resolve(m wire.StartMessage) (*program, *jobs.Exit) {
	env, err := addEnv(p.env, wire.Strings(m.Env))
	if err != nil {
		return nil, notStarted(codeCannot, "%v", err)
	}
	dir := string(m.Dir)
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			dir = "/"
		}
	}
	if err := usableDir(dir); err != nil {
		return nil, notStarted(codeCannot, "working directory %s: %v", dir, reason(err))
	}
	prog := &program{argv: wire.Strings(m.Argv), env: setEnv(env, "PWD", dir), dir: dir}
	if m.Port != 0 { // by this program: a process of its own, as any command is
		prog.path, prog.argv = "/proc/self/exe", []string{"berth", VerbDial, strconv.Itoa(m.Port)}
		return prog, nil
	}
	if m.Shell != "" {
		prog.argv = []string{p.shell, "-c", string(m.Shell)}
		if filepath.Base(p.shell) == "bash" {
			prog.argv = []string{p.shell, "--norc", "--noprofile", "-c", string(m.Shell)}
		}
	}
	if len(prog.argv) == 0 || prog.argv[0] == "" {
		return nil, notStarted(codeNotFound, "no program is named")
	}
	for _, a := range prog.argv {
		if strings.ContainsRune(a, 0) {
			return nil, notStarted(codeCannot, "an argument holds a NUL byte")
		}
	}
	var no *jobs.Exit
	prog.path, no = find(prog.argv[0], getEnv(env, "PATH"), dir)
	return prog, no
}

// usableDir tells whether dir can be a working directory.
func usableDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return syscall.ENOTDIR
	}
	return unix.Access(dir, unix.X_OK)
}

// executable tells whether path is a file that may be executed.
func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return syscall.EACCES
	}
	return unix.Access(path, unix.X_OK)
}

// find looks a program up as execvp(3) does: with the command's own PATH, and
// from its working directory.
func find(name, path, dir string) (string, *jobs.Exit) {
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		switch err := executable(full); {
		case err == nil:
			return full, nil
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return "", notStarted(codeNotFound, "%s: no such file or directory", name)
		default:
			return "", notStarted(codeCannot, "%s: %v", name, reason(err))
		}
	}
	var denied error
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		full := filepath.Join(d, name)
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if fi, serr := os.Stat(full); serr == nil && !fi.IsDir() {
			denied = err
		}
	}
	if denied != nil {
		return "", notStarted(codeCannot, "%s: %v", name, reason(denied))
	}
	return "", notStarted(codeNotFound, "%s: command not found", name)
}

// refused explains why the kernel did not execute a program that was found.
func refused(name string, err error) jobs.Exit {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return *notStarted(codeNotFound, "%s: its interpreter or loader does not exist here", name)
	case errors.Is(err, syscall.ENOEXEC):
		return *notStarted(codeCannot, "%s: not a program for this machine, or a script without #!", name)
	}
	return *notStarted(codeCannot, "%s: %v", name, reason(err))
}

// reason drops the operation and the path from an error: the text names the
// thing already.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
