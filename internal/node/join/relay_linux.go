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

	"berth/internal/link/wire"
	"berth/internal/network/wayout"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// RelayMain is `berth-node relay-join --dir DIR`: it connects to the supervisor of the
// attempt or environment, and passes bytes until either side ends.
func RelayMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A job that is ended sends TERM to everything of it: what is to be done then may need
	// the network, and the supervisor ends it.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	syscall.Umask(0o077)
	fs := flag.NewFlagSet(VerbRelay, flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("dir", "", "the attempt's or environment's directory")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if !filepath.IsAbs(*dir) || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node relay-join --dir DIR")
		return jobs.CodeUsage
	}
	f, err := wayout.Join(context.Background(), filepath.Clean(*dir))
	if err != nil {
		_ = keeper.Failed(err).Write(stderr, Prefix)
		return jobs.CodeOf(err)
	}
	_ = keeper.Report{Version: wire.Version, Ready: true}.Write(stderr, Prefix)
	// The end of the input is that of the relay: nothing more is to be passed back.
	go func() {
		copyThrough(f, wire.Gather(stdin))
		_ = f.Close()
	}()
	copyThrough(stdout, f)
	return jobs.CodeOK
}
