package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

const quarantinePrefix = "quarantine-"

// quarantine is a git directory of its own, borrowing the user's objects, into
// which a bundle is unpacked and checked before the user's repository sees it.
type quarantine struct {
	*Borrowed
	strict string // the flag that makes git check what it unpacks
}

// openQuarantine makes one inside the attempt's directory. It knows what the git
// directory from says of the history, and other objects before the user's.
func (g *Git) openQuarantine(ctx context.Context, attemptDir string, src Source, from string, before ...string) (_ *quarantine, err error) {
	b, err := g.borrow(ctx, attemptDir, src, from, before...)
	if err != nil {
		return nil, err
	}
	dir := b.Dir
	q := &quarantine{Borrowed: b}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a quarantine: %w", err), q.Close())
		}
	}()
	// What the base has already is the user's own and not judged again: git
	// checks .gitmodules whenever a tree that names it is new.
	base, err := g.readTree(ctx, dir, src.Base)
	if err != nil {
		return nil, lacksObjects(src, err)
	}
	q.strict, err = strictBut(base, dir)
	return q, err
}

// strictBut is the flag by which git checks what it unpacks, and not what the base has
// already, when it runs in dir.
func strictBut(base tree, dir string) (flag string, err error) {
	var known strings.Builder
	for name, e := range base.entries {
		if e.mode != modeGitlink && readByGit(path.Base(name)) {
			known.WriteString(e.id + "\n")
		}
	}
	// Relative, because the flag is cut at commas and spaces.
	return "--strict=skiplist=known", writeFiles(dir, map[string]string{"known": known.String()})
}

// load unpacks a bundle. The pack goes straight to index-pack: git fetch does
// not check what it takes from a bundle before 2.46, whatever
// transfer.fsckObjects says.
func (q *quarantine) load(ctx context.Context, bundle string) error {
	return q.g.unpack(ctx, q.Dir, bundle, q.strict)
}

func (g *Git) unpack(ctx context.Context, gitDir, bundle string, flags ...string) error {
	f, err := os.Open(bundle)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if err := skipBundleHeader(r); err != nil {
		return fmt.Errorf("%s: %w", bundle, err)
	}
	args := append(append([]string{"index-pack"}, flags...), "--fix-thin", "--stdin")
	return g.run(ctx, call{gitDir: gitDir, stdin: r, args: args})
}

// skipBundleHeader reads up to the pack: a signature line, lines for
// capabilities, prerequisites and refs, an empty line (gitformat-bundle).
func skipBundleHeader(r *bufio.Reader) error {
	for n := 0; n < 1000; n++ {
		line, err := r.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("not a git bundle: %w", ErrRejected)
		case err != nil:
			return err
		case n == 0 && line != "# v2 git bundle\n" && line != "# v3 git bundle\n":
			return fmt.Errorf("not a git bundle: %w", ErrRejected)
		case line == "\n":
			return nil
		}
	}
	return fmt.Errorf("too many lines before the pack: %w", ErrRejected)
}

// refusals gives, by object id, what git's check said when it refused a pack.
func refusals(err error) map[string]string {
	var ge *GitError
	if !errors.As(err, &ge) {
		return nil
	}
	out := map[string]string{}
	complaint := regexp.MustCompile(`(?m)^error: object ([0-9a-f]{40,64}): (.*)$`) // large, and hardly ever needed
	for _, m := range complaint.FindAllStringSubmatch(ge.Stderr, -1) {
		out[m[1]] = m[2]
	}
	return out
}

func (c *collector) bundleFile() string {
	if c.opts.Bundle != "" {
		return filepath.Join(c.attempt, c.opts.Bundle)
	}
	return filepath.Join(c.attempt, BundleFile)
}

// bundle writes the bundle and tries it in a quarantine, so that a result that
// is there can also be taken in; or lends the commit, which is judged as well. When git
// refuses files of it, they are given with the reason.
func (c *collector) bundle(ctx context.Context, res Result) (refused map[string]string, err error) {
	if c.opts.lend != "" {
		err = c.lend(ctx)
	} else {
		err = c.quarantined(ctx)
	}
	if err == nil {
		return nil, nil
	}
	why := refusals(err)
	refused = map[string]string{}
	files := res.Files
	if len(why) > 0 && c.opts.Bundle != "" {
		var ferr error
		if files, ferr = c.changes(ctx, res.Commit); ferr != nil {
			return nil, errors.Join(err, ferr)
		}
	}
	for _, f := range files {
		if w, ok := why[f.id]; ok {
			refused[string(f.Path)] = "git refuses it: " + lastLines(w, 1)
		}
	}
	return refused, err
}

// quarantined writes the bundle and tries it.
func (c *collector) quarantined(ctx context.Context) error {
	ref := "refs/heads/" + c.opts.Branch
	name := c.bundleFile()
	err := writeWhole(name, func(f *os.File) error {
		return c.g.run(ctx, call{gitDir: c.gitDir, stdout: f, args: []string{"bundle", "create", "-", ref, "^" + c.src.Base}})
	})
	if err != nil {
		return err
	}
	q, err := c.g.openQuarantine(ctx, c.attempt, c.src, c.gitDir, filepath.Join(c.gitDir, baseDir))
	if err != nil {
		return err
	}
	return errors.Join(q.load(ctx, name), q.Close())
}
