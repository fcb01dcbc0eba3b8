package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Limits of a stream. They are far above what trees have and keep a hostile
// stream from costing more than its bytes.
const (
	maxDepth       = 500 // every level holds two descriptors of the packer
	maxName        = 16 << 10
	maxComponent   = 255  // NAME_MAX
	maxTarget      = 4095 // PATH_MAX of a symbolic link
	maxEntries     = 20_000_000
	maxDirectories = 1_000_000
	maxTrailer     = 1 << 20 // behind the end of the archive
)

// bufferSize is that of the one buffer of a Pack or Unpack.
const bufferSize = 256 << 10

// ErrStream is a stream that Pack does not write: hostile, damaged, or cut.
var ErrStream = errors.New("not a stream of files as berth writes them")

func badStream(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrStream)
}

// Options of Pack and Unpack. The zero value is usable.
type Options struct {
	// Name is what the top is called in place of its own name. Pack puts it
	// into the stream; for Unpack the destination is then a directory that
	// exists, and the top becomes this name in it.
	Name string
	// Progress is told after each piece how many bytes of files have passed.
	Progress func(bytes int64)
}

// cleanName checks a name of a stream. The top of a stream of contents is ".".
func cleanName(name string) (string, error) {
	if len(name) > maxName || strings.ContainsRune(name, 0) || strings.HasPrefix(name, "/") || name == "" {
		return "", badStream("name %q", shorten(name))
	}
	depth := 0
	for c := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		depth++
		if c == ".." || c == "" || len(c) > maxComponent || depth > maxDepth+2 {
			return "", badStream("name %q", shorten(name))
		}
	}
	return path.Clean(name), nil
}

func shorten(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// oneComponent tells whether name can be of an entry of a directory.
func oneComponent(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxComponent && !strings.ContainsAny(name, "/\x00")
}

// mover moves the bytes of files.
type mover struct {
	ctx   context.Context
	buf   []byte
	tally Tally
	o     Options
}

// move copies up to n bytes. The errors of the two sides are told apart.
func (m *mover) move(w io.Writer, r io.Reader, n int64) (moved int64, rerr, werr error) {
	for moved < n {
		if err := m.ctx.Err(); err != nil {
			return moved, nil, context.Cause(m.ctx)
		}
		k, rerr := r.Read(m.buf[:min(int64(len(m.buf)), n-moved)])
		if k > 0 {
			if _, werr := w.Write(m.buf[:k]); werr != nil {
				return moved, nil, werr
			}
			moved += int64(k)
			m.count(int64(k))
		}
		if rerr != nil {
			return moved, rerr, nil
		}
	}
	return moved, nil, nil
}

// count notes bytes that have passed.
func (m *mover) count(n int64) {
	m.tally.Bytes += n
	if m.o.Progress != nil {
		m.o.Progress(m.tally.Bytes)
	}
}
