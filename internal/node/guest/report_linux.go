package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"berth/internal/node/room"
	"berth/internal/sweep/metric"
	"berth/jobs"
	"berth/templates"

	"golang.org/x/sys/unix"
)

// report is the named pipe to which a command writes what it says besides its output. The program
// berth, which does that for it, is in the same directory.
type report struct {
	ours, hold *os.File // without hold, ours would be at its end before the command has opened it
	dir        string   // to be removed, or ""
}

// openReport makes the pipe of a command that is to have one, and tells its program. Nil is that
// it has none.
func (c *command) openReport(p *program) (*report, error) {
	if c.report == nil {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &report{}
	var dir, at string // as it is here, and as the command sees it
	if p.own == nil {
		dir, err = c.s.files.subdir()
		r.dir, at = dir, dir
	} else {
		dir, at = filepath.Join(p.own.options.Own.Scratch, "report"), room.ReportDir
		err = os.Mkdir(dir, 0o700)
		p.own.options.Own.Report = dir
		self = room.Node
	}
	if err != nil {
		return r, err
	}
	line := "#!/bin/sh\nexec " + templates.Quote(self) + " " + VerbReport + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, askBerth), []byte(line), 0o700); err != nil { //nolint:gosec // a program
		return r, err
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return r, err
	}
	fd, err := reading(pipe)
	if err != nil {
		return r, err
	}
	if r.ours, r.hold, err = held(fd, pipe); err != nil {
		return r, err
	}
	p.env = setEnv(p.env, string(c.msg.Report), filepath.Join(at, "pipe"))
	p.env = setEnv(p.env, "PATH", at+":"+getEnv(p.env, "PATH"))
	return r, nil
}

// release lets the pipe end when no other process has it open.
func (r *report) release() {
	if r != nil && r.hold != nil {
		_ = r.hold.Close()
		r.hold = nil
	}
}

// close ends it.
func (r *report) close() {
	if r == nil {
		return
	}
	r.release()
	if r.ours != nil {
		_ = r.ours.Close() // a drain that has it, has closed it
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// VerbReport is the verb of berth-node that the program berth is for a command with a pipe for
// reports.
const VerbReport = "report"

// ReportMain is `berth-node report metric NAME=VALUE...`.
func ReportMain(args []string, stderr io.Writer) int {
	if len(args) == 0 || args[0] != "metric" {
		_, _ = fmt.Fprintln(stderr, "berth: error: a task of a sweep can say nothing but: berth metric NAME=VALUE...")
		return jobs.CodeUsage
	}
	if err := metric.Say(os.Getenv(metric.Var), args[1:]); err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: error: %v\n", err)
		return jobs.CodeOf(err)
	}
	return 0
}
