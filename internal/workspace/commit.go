package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRestarts bounds how often a commit is begun again because a file could
// not be read to its end.
const maxRestarts = 20

// errTorn stops a stream to git in the middle of a file.
var errTorn = errors.New("file could not be read to its end")

// commit makes the commit of a delta on the branch in berth's git directory.
// Files that turn out to be unreadable are reported and left out: the delta
// that was used is given back, with the commit and its tree.
func (c *collector) commit(ctx context.Context, d delta) (id, tree string, used delta, err error) {
	for try := 0; ; try++ {
		s := &stream{collector: c, delta: d, failed: map[string]string{}}
		if c.opts.lend != "" {
			if err := c.setApart(); err != nil {
				return "", "", d, err
			}
		}
		said, err := s.run(ctx)
		if c.opts.Bundle != "" && len(s.failed) > 0 {
			return "", "", d, ErrChanging
		}
		d = c.leaveOut(d, Unreadable, s.failed)
		if errors.Is(err, errTorn) && try < maxRestarts {
			continue
		}
		if err != nil {
			return "", "", d, err
		}
		// The commit alone, then the line of its tree and that of the base: "mode tree ID<TAB>".
		f := strings.Fields(said)
		if len(f) != 7 || !isObjectID(f[0]) || !isObjectID(f[3]) || !isObjectID(f[6]) {
			return "", "", d, fmt.Errorf("git fast-import: unexpected answer %q", said)
		}
		c.tree = f[6]
		return f[0], f[3], d, nil
	}
}

// stream feeds one commit to git fast-import. Git is given names and bytes; it
// has no work tree to look at.
type stream struct {
	*collector
	delta  delta
	failed map[string]string
}

// run gives what git has answered.
func (s *stream) run(ctx context.Context) (said string, err error) {
	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		w := bufio.NewWriterSize(pw, 64<<10)
		err := s.write(ctx, w)
		if err == nil {
			err = w.Flush()
		}
		pw.CloseWithError(err)
		wrote <- err
	}()
	args := []string{"fast-import", "--quiet", "--force", "--done", "--date-format=raw", "--depth=0"}
	if s.opts.lend != "" {
		// One pack, however few objects; nothing of it is kept.
		args = append([]string{"-c", "fastimport.unpackLimit=0", "-c", "core.fsync=none"}, args...)
	}
	said, err = s.g.line(ctx, call{gitDir: s.gitDir, env: s.env, stdin: pr, args: args})
	pr.CloseWithError(io.ErrClosedPipe) // git may have ended without reading all
	if werr := <-wrote; errors.Is(werr, errTorn) || err == nil {
		return said, werr
	}
	return said, err
}

// write writes the stream. It ends in "done", without which git makes nothing
// of it.
func (s *stream) write(ctx context.Context, w *bufio.Writer) error {
	who := fmt.Sprintf("%s <%s> %d +0000", identPart(s.opts.Author.Name), identPart(s.opts.Author.Email), s.opts.Time.Unix())
	message := messageOf(s.opts.Message)
	_, err := fmt.Fprintf(w, "commit refs/heads/%s\nmark :1\nauthor %s\ncommitter %s\ndata %d\n%s\nfrom %s\n",
		s.opts.Branch, who, who, len(message), message, s.src.Base)
	if err != nil {
		return err
	}
	// Deletions first: a file may have become a directory, or a directory a
	// file.
	for _, p := range s.delta.remove {
		if _, err := fmt.Fprintf(w, "D %s\n", quote(p)); err != nil {
			return err
		}
	}
	for _, f := range s.delta.put {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.put(ctx, w, f); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "\nget-mark :1\nls :1 \"\"\nls %s \"\"\n", s.src.Base); err != nil {
		return err
	}
	if s.opts.lend != "" { // its objects do not stay here, and so no branch does
		if _, err := fmt.Fprintf(w, "reset refs/heads/%s\nfrom %s\n\n", s.opts.Branch, strings.Repeat("0", len(s.src.Base))); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, "done\n")
	return err
}

func (s *stream) put(ctx context.Context, w *bufio.Writer, f found) error {
	content, n, err := contentOf(ctx, s.work, f)
	if err != nil {
		s.failed[f.path] = "cannot be read: " + reason(err)
		return nil
	}
	defer content.Close()
	if _, err := fmt.Fprintf(w, "M %s inline %s\ndata %d\n", f.mode, quote(f.path), n); err != nil {
		return err
	}
	got, err := io.Copy(w, io.LimitReader(content, n))
	var rerr *readError
	switch {
	case errors.As(err, &rerr):
		s.failed[f.path] = "cannot be read: " + reason(rerr.err)
		return errTorn
	case err != nil:
		return err
	case got < n:
		s.failed[f.path] = "changed while it was read"
		return errTorn
	}
	s.sizes[f.path] = n
	return w.WriteByte('\n')
}

// messageOf makes a commit message that git's fsck accepts.
func messageOf(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\ufffd"))
	if s == "" {
		s = "berth: result of a task"
	}
	return s + "\n"
}

// identPart takes out what would end a name or address.
func identPart(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
}
