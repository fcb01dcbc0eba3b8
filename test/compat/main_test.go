//go:build compat

package compat

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/wire"
)

// The two programs, each of which is its own program for the nodes as well; and
// this version with another number of the protocol, to which the others do not talk.
var before, now, later string

// root is the top of the repository.
const root = "../.."

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they mostly wait
		panic(err)
	}
	dir, err := os.MkdirTemp("", "berth-compat-")
	if err == nil {
		err = build(dir)
	}
	sockets := filepath.Join(dir, "run")
	err = errors.Join(err, os.Mkdir(sockets, 0o700), os.Setenv("XDG_RUNTIME_DIR", sockets))
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build makes both programs, with nothing of this checkout in the old one.
func build(dir string) error {
	began := time.Now()
	b, err := os.ReadFile("previous")
	if err != nil {
		return err
	}
	rev := strings.TrimSpace(string(b))
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", rev+"^{commit}").CombinedOutput(); err != nil {
		return fmt.Errorf("commit %s, the version before this one (test/compat/previous), is not in this clone: git fetch --unshallow: %w: %s", rev, err, bytes.TrimSpace(out))
	}
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o700); err != nil {
		return err
	}
	if err := pipe(exec.Command("git", "-C", root, "archive", rev), exec.Command("tar", "-x", "-C", src)); err != nil {
		return fmt.Errorf("take the sources of %s: %w", rev, err)
	}
	overlay, err := raised(dir)
	if err != nil {
		return err
	}
	before, now, later = filepath.Join(dir, "old", "berth"), filepath.Join(dir, "new", "berth"), filepath.Join(dir, "later", "berth")
	for _, b := range []struct{ from, to, version, overlay string }{{src, before, rev, ""}, {root, now, "now", ""}, {root, later, "later", overlay}} {
		cmd := exec.Command("go", "build", "-overlay="+b.overlay, "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X berth/internal/cli.version="+b.version, "-o", b.to, "./cmd/berth")
		cmd.Dir, cmd.Env = b.from, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.version, err, out)
		}
	}
	fmt.Fprintf(os.Stderr, "compat: built %.12s and this version in %.0f s\n", rev, time.Since(began).Seconds())
	return os.RemoveAll(src)
}

// raised makes an overlay of sources in which the protocol has another number.
func raised(dir string) (string, error) {
	file, err := filepath.Abs(filepath.Join(root, "internal/link/wire/hello.go"))
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	number := fmt.Appendf(nil, "const Version = %d\n", wire.Version)
	if !bytes.Contains(b, number) {
		return "", fmt.Errorf("no line %q in %s", number, file)
	}
	to, overlay := filepath.Join(dir, "hello.go"), filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(to, bytes.Replace(b, number, []byte("const Version = 99\n"), 1), 0o600),
		os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, file, to), 0o600))
}

// pipe runs from and to, whose input is the output of from.
func pipe(from, to *exec.Cmd) error {
	r, w := io.Pipe()
	var said bytes.Buffer
	from.Stdout, from.Stderr = w, &said
	to.Stdin, to.Stderr = r, &said
	if err := to.Start(); err != nil {
		return err
	}
	ferr := from.Run()
	_ = w.Close()
	if err := errors.Join(ferr, to.Wait()); err != nil {
		return fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return nil
}

// image is an image of docker's on this machine, or "".
func image() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "berth-testbed-base").Output()
	name, _, _ := strings.Cut(string(out), "\n")
	return name
}
