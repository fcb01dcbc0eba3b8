package keeper

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"berth/jobs"
	"berth/jobs/store"
)

// ConnectMain is `berth-node connect --env DIR [--make] [--no-start]`: it
// reaches the environment's keeper and joins it to its own standard input and
// output, until either ends. See the package's documentation.
func ConnectMain(args []string, stdin, stdout *os.File, stderr io.Writer) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet("connect", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("env", "", "the environment's directory")
	create := fs.Bool("make", false, "read the environment's record first, and make it if there is none")
	noStart := fs.Bool("no-start", false, "fail if the environment does not run")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if *dir == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node connect --env DIR [--make] [--no-start]")
		return jobs.CodeUsage
	}
	report := func(r Report) { _ = r.Write(stderr, ConnectPrefix) }
	conn, rep, err := connect(filepath.Clean(*dir), *create, *noStart, stdin, func(text string) { report(Report{Progress: text}) })
	if err != nil {
		report(Failed(err))
		if errors.Is(err, ErrNotRunning) {
			return jobs.CodeNotFound
		}
		return jobs.CodeOf(err)
	}
	report(*rep)
	joined(conn, stdin, stdout)
	return 0
}

// joined carries bytes between a client and its keeper until either ends, and
// closes conn. A keeper that is ending reads nothing more, but has last words:
// what of the client's it has not read.
func joined(conn io.ReadWriteCloser, stdin io.Reader, stdout io.Writer) {
	ended := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) error {
		// The wrappers keep io.Copy from asking the kernel to splice, which
		// holds a byte back until a pipe is full on some.
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 128<<10))
		return err
	}
	go func() {
		if carry(conn, stdin) != nil {
			_ = carry(io.Discard, stdin) // until the client leaves
		}
		ended <- struct{}{}
	}()
	go func() {
		_ = carry(stdout, conn)
		ended <- struct{}{}
	}()
	<-ended
	_ = conn.Close()
}

func connect(dir string, create, noStart bool, stdin io.Reader, progress func(string)) (io.ReadWriteCloser, *Report, error) {
	if !filepath.IsAbs(dir) {
		return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the environment's directory " + dir + " is not an absolute path"}
	}
	if create {
		spec, err := readSpec(stdin)
		if err != nil {
			return nil, nil, err
		}
		got, _, err := store.CreateEnv(dir, spec)
		if err != nil {
			return nil, nil, err
		}
		if got.ID != spec.ID {
			return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "another environment stands in " + dir,
				Hint: "use another name, or remove that one"}
		}
	}
	node, err := os.Executable()
	if err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "find the program to start", Err: err}
	}
	return Open(context.Background(), dir, OpenOptions{Node: node, NoStart: noStart, Progress: progress})
}
