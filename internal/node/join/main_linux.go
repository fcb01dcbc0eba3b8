package join

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"berth/backends/docker"
	"berth/backends/local"
	"berth/internal/link/wire"
	"berth/internal/node/guest"
	"berth/internal/node/keeper"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Main is `berth-node join --attempt DIR [--wait DURATION]`: it brings a guest
// into the place of the attempt's task, which runs on this machine, and passes
// its streams on until either side ends. See the package's documentation.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A job that is ended sends TERM to everything of it. The guest is left to
	// the container's end, which its client is then told; what is started here
	// inherits that these are ignored, and the guest undoes it.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet("join", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("attempt", "", "the attempt's directory")
	wait := fs.Duration("wait", time.Minute, "how long to wait for a place that is being prepared")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if !filepath.IsAbs(*dir) || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node join --attempt DIR [--wait DURATION]")
		return jobs.CodeUsage
	}
	report := func(r keeper.Report) { _ = r.Write(stderr, Prefix) }
	ctx, cancel := context.WithTimeout(context.Background(), *wait)
	defer cancel()
	t, err := find(ctx, filepath.Clean(*dir), func(text string) { report(keeper.Report{Version: wire.Version, Progress: text}) })
	var p *program
	if err == nil {
		p, err = t.program()
	}
	if err != nil {
		report(keeper.Failed(err))
		return jobs.CodeOf(err)
	}
	report(keeper.Report{Version: wire.Version, Ready: true, Inside: t.inside})
	code, err := p.pass(stdin, stdout, stderr)
	if err != nil {
		report(keeper.Failed(err))
		return jobs.CodeOf(err)
	}
	return code
}

// program brings the guest to where the task runs.
func (t *target) program() (*program, error) {
	alive := func() bool { return lease.StartTime(t.runner.PID) == t.runner.Start }
	switch can := t.spec.Can(); {
	case can.Enters():
		return entering(t)
	case can.Daemon:
		argv, env, err := docker.ExecArgv(context.Background(), run.Local{}, t.info.Name, "guest", guest.Joined)
		return &program{argv: argv, env: env, dir: "/", alive: alive, release: func() {}}, err
	case can.Bare && !can.OtherHost:
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return &program{argv: []string{self, "guest", guest.Joined}, env: local.Environ(os.Getenv), dir: "/", alive: alive, release: func() {}}, nil
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "a job on the backend " + t.spec.Backend + " cannot be joined",
		Hint: "berth logs -f " + jobs.Short(t.spec.ID)}
}
