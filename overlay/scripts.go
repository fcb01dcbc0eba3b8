package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// Scripts of an image that set its variables, see [Scripts].
const (
	scriptsDir  = jobs.ImageDir + "/env"
	maxScripts  = 1 << 20 // of all together, in bytes
	scriptsTime = time.Minute
)

// Scripts returns the texts of the scripts by which an image sets variables, in
// the order of their names. Image is a SIF, another squashfs or a directory; a
// SIF's are unpacked in scratch. They are only read, and links not followed:
// "inspect" of the container program gives what a link leads to on the host.
// What is no more than comments is left out.
func Scripts(ctx context.Context, on jobs.Starter, image, scratch string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptsTime)
	defer cancel()
	fi, err := os.Stat(image)
	if err != nil {
		return nil, err
	}
	dir := image
	if !fi.IsDir() {
		if dir, err = os.MkdirTemp(scratch, "scripts-*"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := unpackScripts(ctx, on, image, filepath.Join(dir, "files")); err != nil {
			return nil, fmt.Errorf("read the image's own variables: %w", err)
		}
		dir = filepath.Join(dir, "files")
	}
	texts, err := readScripts(dir)
	if err != nil {
		return nil, fmt.Errorf("read the image's own variables: %w", err)
	}
	return texts, nil
}

func unpackScripts(ctx context.Context, on jobs.Starter, image, to string) error {
	at, err := squashfsOf(image)
	if err != nil {
		at = 0 // a squashfs without a SIF around it, or nothing that can be read
	}
	program, err := exec.LookPath("unsquashfs")
	if err != nil {
		return errNoLister
	}
	offset := strconv.FormatInt(at, 10)
	// Looked at before it is written anywhere.
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{program, "-o", offset, "-ll", "-d", "", image, scriptsDir},
		Env: append(os.Environ(), "LC_ALL=C")})
	if err != nil {
		return err
	}
	l := parseListing(string(out))
	if l.size > maxScripts {
		return errScripts
	}
	if ok, _ := l.has(scriptsDir); !ok {
		return os.Mkdir(to, 0o700)
	}
	_, err = run.Output(ctx, on, jobs.Cmd{Argv: []string{program, "-o", offset, "-n", "-no-xattrs", "-d", to, image, scriptsDir}})
	return err
}

var errScripts = fmt.Errorf("the scripts in /%s have more than %v", scriptsDir, jobs.Bytes(maxScripts))

func readScripts(dir string) (texts []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), scriptsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	left := int64(maxScripts)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sh") || !e.Type().IsRegular() {
			continue
		}
		f, err := root.OpenFile(filepath.Join(scriptsDir, e.Name()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(f, left+1))
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if left -= int64(len(b)); left < 0 {
			return nil, errScripts
		}
		if says(string(b)) {
			texts = append(texts, string(b))
		}
	}
	return texts, nil
}

// says tells whether a script has more than comments.
func says(script string) bool {
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}
