package workspace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
)

// Call is one git command of a package that builds on this one.
type Call struct {
	Args   []string // after "git" and the fixed options
	GitDir string   // "" has git search from Dir
	Dir    string   // "" is GitDir
	Env    []string // beside the fixed variables
	Stdin  io.Reader
	Stdout io.Writer
	// User is the user's environment, for their own work tree: their configuration
	// and their filters hold there, and still no hook. Nil is none of that.
	User func(string) (string, bool)
}

// Do runs git. A failure is a [*GitError].
func (g *Git) Do(ctx context.Context, c Call) error {
	return g.run(ctx, call{args: c.Args, gitDir: c.GitDir, dir: c.Dir, env: c.Env, stdin: c.Stdin, stdout: c.Stdout, user: c.User})
}

// Output runs git and returns what it wrote.
func (g *Git) Output(ctx context.Context, c Call) ([]byte, error) {
	return g.output(ctx, call{args: c.Args, gitDir: c.GitDir, dir: c.Dir, env: c.Env, stdin: c.Stdin, user: c.User})
}

// Line is Output without the line break at the end.
func (g *Git) Line(ctx context.Context, c Call) (string, error) {
	out, err := g.Output(ctx, c)
	return strings.TrimSuffix(string(out), "\n"), err
}

// ExitCode returns the exit code of a git that ran and failed, else -1.
func ExitCode(err error) int { return exitCode(err) }

// Borrowed is a git directory of berth's own for a moment, which borrows the user's
// objects. No configuration, hook or attribute of the user's or of a task's is in it, and
// what is made in it is not in the user's repository.
type Borrowed struct {
	Dir string
	g   *Git
	src Source
}

// Borrow makes one in the attempt's directory. The repository must be there.
func (g *Git) Borrow(ctx context.Context, attemptDir string, src Source) (*Borrowed, error) {
	sweepTagged(attemptDir, quarantinePrefix, false)
	if err := g.checkSource(ctx, src); err != nil {
		return nil, err
	}
	return g.borrow(ctx, attemptDir, src, src.Repo)
}

func (g *Git) borrow(ctx context.Context, attemptDir string, src Source, from string, before ...string) (*Borrowed, error) {
	dir, err := makeTagged(attemptDir, quarantinePrefix)
	if err != nil {
		return nil, fmt.Errorf("make a quarantine: %w", err)
	}
	b := &Borrowed{Dir: dir, g: g, src: src}
	if err := g.initBare(ctx, dir, src, from, before...); err != nil {
		return nil, errors.Join(fmt.Errorf("make a quarantine: %w", err), b.Close())
	}
	return b, nil
}

// Close removes it.
func (b *Borrowed) Close() error { return disk.RemoveTree(b.Dir) }

// Output runs git in it and returns what it wrote.
func (b *Borrowed) Output(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	return b.g.output(ctx, call{gitDir: b.Dir, stdin: stdin, args: args})
}

// unpackLimit is git's own: fewer objects are stored one by one, so that many
// small results do not leave many packs.
const unpackLimit = 100

// Give copies objects from it into the user's repository: what the revisions reach and
// those with a "^" do not. Unlike a fetch this obeys no remote or fetch configuration
// and leaves no trace but the objects.
func (b *Borrowed) Give(ctx context.Context, revs ...string) error {
	return b.give(ctx, b.src, revs...)
}

// Lend copies a commit into the bare git directory dir, from which jobs start, in place of
// the user's repository: what it reaches and those that follow do not. dir is made when it
// is missing, borrows the user's objects and keeps the commit.
func (b *Borrowed) Lend(ctx context.Context, dir, commit string, not ...string) error {
	if err := b.g.lender(ctx, dir, b.src); err != nil {
		return err
	}
	to := b.src
	to.Repo, to.Top = dir, dir
	revs := []string{commit}
	for _, n := range not {
		revs = append(revs, "^"+n)
	}
	if err := b.give(ctx, to, revs...); err != nil {
		return err
	}
	return b.g.run(ctx, call{gitDir: dir, args: []string{"update-ref", "--no-deref", basePrefix + commit, commit}})
}

func (b *Borrowed) give(ctx context.Context, to Source, revs ...string) (err error) {
	pack, err := os.Create(filepath.Join(b.Dir, "release.pack"))
	if err != nil {
		return err
	}
	defer pack.Close()
	if err := b.g.packed(ctx, b.Dir, pack, revs...); err != nil {
		return err
	}
	var head [12]byte // "PACK", version, number of objects
	if _, err := pack.ReadAt(head[:], 0); err != nil {
		return err
	}
	args := []string{"index-pack", "--stdin", "--fix-thin"}
	if binary.BigEndian.Uint32(head[8:]) < unpackLimit {
		args = []string{"unpack-objects", "-q"}
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in, err := openIncoming(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	if err := b.g.run(ctx, call{gitDir: to.Repo, stdin: pack, env: in.env(), args: args}); err != nil {
		return err
	}
	return in.migrate()
}

// packed writes what the revisions reach, and those with a "^" do not, as a thin pack.
func (g *Git) packed(ctx context.Context, gitDir string, to *os.File, revs ...string) error {
	return g.run(ctx, call{gitDir: gitDir, stdin: strings.NewReader(strings.Join(revs, "\n") + "\n"), stdout: to,
		args: []string{"pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"}})
}

// Changes lists what to has different from the commit or tree from, in git's order of
// paths. Of symbolic links the target is told.
func (b *Borrowed) Changes(ctx context.Context, from, to string) ([]Change, error) {
	out, err := b.Output(ctx, nil, append(append([]string{}, diffFlags...), "-z", "--raw", "--numstat", from, to)...)
	if err != nil {
		return nil, err
	}
	list, err := parseChanges(string(out))
	if err != nil {
		return nil, err
	}
	for i := range list {
		if f := &list[i]; f.Mode == modeLink {
			text, err := b.Output(ctx, nil, "cat-file", "blob", f.id)
			if err != nil {
				return nil, err
			}
			f.Target = Path(text[:min(len(text), maxPathBytes)])
			f.Escapes = escapes(string(f.Path), string(f.Target))
		}
	}
	return list, nil
}

// Patch writes the same as a patch. The paths of first come before all others.
func (b *Borrowed) Patch(ctx context.Context, from, to string, first []Path, w io.Writer) error {
	var order strings.Builder
	for _, p := range first {
		if !strings.ContainsAny(string(p), "\n\r") {
			order.WriteString(globLiteral(string(p)) + "\n")
		}
	}
	if err := writeFiles(b.Dir, map[string]string{"order": order.String()}); err != nil {
		return err
	}
	return b.g.run(ctx, call{gitDir: b.Dir, stdout: w,
		args: append(append([]string{}, diffFlags...), "-O"+filepath.Join(b.Dir, "order"), "-p", from, to)})
}

// globLiteral is the pattern that matches this path alone.
func globLiteral(p string) string {
	var b strings.Builder
	for i := range len(p) {
		if strings.IndexByte(`*?[]\#`, p[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// ControlFile returns the part of a path that makes it one of a control file, which
// programs of whoever works in the repository obey, or "".
func ControlFile(p string) string { return control(p) }
