package apptainer

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"syscall"

	"berth/internal/images"
	"berth/internal/sys/run"
	"berth/jobs"
)

// foundBefore is what the submitter was told by the registry.
type foundBefore string

// Digest returns it: what runs is settled by whoever submits.
func (d foundBefore) Digest(context.Context, images.Name) (string, error) { return string(d), nil }

// PullMain is "berth-node image-pull --home HOME --images DIR REFERENCE DIGEST
// ...", the command of a job that fetches images on a node that sees registries.
// What happens is said on the standard error.
func PullMain(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet(jobs.VerbPull, flag.ContinueOnError)
	fs.SetOutput(stderr)
	home := fs.String("home", "", "the state directory")
	dir := fs.String("images", "", "the cache of images")
	scratch := fs.String("scratch", "", "a profile's scratch directory")
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if !filepath.IsAbs(*home) || !filepath.IsAbs(*dir) || fs.NArg() == 0 || fs.NArg()%2 != 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node "+jobs.VerbPull+" --home DIR --images DIR [--scratch DIR] REFERENCE DIGEST...")
		return jobs.CodeUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	c := NewCache(*home, run.Local{}, func(line string) { _, _ = fmt.Fprintf(stderr, "berth: %s\n", line) })
	c.Dir, c.Scratch = *dir, *scratch
	for i := 0; i < fs.NArg(); i += 2 {
		c.Resolve = nil
		if d := fs.Arg(i + 1); d != jobs.NoDigest {
			c.Resolve = foundBefore(d)
		}
		img, err := c.Get(ctx, fs.Arg(i))
		if err != nil {
			return failed(stderr, err)
		}
		_, _ = fmt.Fprintf(stderr, "berth: %s is %s\n", fs.Arg(i), img.Path)
	}
	return jobs.CodeOK
}

// failed says an error of a job of berth's own as the client does.
func failed(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "berth: error: %v\n", err)
	if h := jobs.HintOf(err); h != "" {
		_, _ = fmt.Fprintf(stderr, "berth: hint: %s\n", h)
	}
	return jobs.CodeOf(err)
}
