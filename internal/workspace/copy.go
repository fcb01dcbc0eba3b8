package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A job on a cluster that is reached by ssh starts from a copy of the user's
// repository there: a bare git directory that gets, each time, what it lacks of
// the commit that is wanted, as one pack.

// CopyKey names the copy of a repository: the same for the same repository of
// the same machine. One that is shallow has another, because what it lacks is
// written down in the copy.
func CopyKey(host string, src Source) (string, error) {
	shallow, err := optional(filepath.Join(src.Repo, "shallow"))
	if err != nil {
		return "", fmt.Errorf("read repository %q: %w", src.Repo, err)
	}
	h := sha256.New()
	for _, w := range []string{"1", host, src.Repo, string(shallow)} {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(w), w)
	}
	return hex.EncodeToString(h.Sum(nil))[:24], nil
}

// Parts is what a copy has besides objects.
type Parts struct {
	Shallow []byte `json:"shallow,omitempty"`
	Exclude []byte `json:"exclude,omitempty"` // the user's info/exclude
}

// Parts reads them from the user's repository.
func (g *Git) Parts(src Source) (p Parts, err error) {
	if p.Shallow, err = optional(filepath.Join(src.Repo, "shallow")); err == nil {
		p.Exclude, err = optional(filepath.Join(src.Repo, "info", "exclude"))
	}
	if err != nil {
		err = fmt.Errorf("read repository %q: %w", src.Repo, err)
	}
	return p, err
}

func optional(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Pack writes what a copy that holds the commits tips lacks of src.Base. Tips
// that the repository here does not know are of no use and passed over. It
// writes nothing when nothing is lacking.
func (g *Git) Pack(ctx context.Context, src Source, tips []string, w io.Writer) error {
	if err := g.checkSource(ctx, src); err != nil {
		return err
	}
	if slices.Contains(tips, src.Base) {
		return nil
	}
	revs := src.Base + "\n"
	known, err := g.Known(ctx, src, tips)
	if err != nil {
		return err
	}
	for _, id := range known {
		revs += "^" + id + "\n"
	}
	err = g.run(ctx, call{gitDir: src.Repo, stdin: strings.NewReader(revs), stdout: w,
		args: []string{"pack-objects", "--revs", "--thin", "--delta-base-offset", "--stdout", "-q"}})
	if err != nil {
		return explainFetch(src, err)
	}
	return nil
}

// Known are the commits among ids that the repository holds.
func (g *Git) Known(ctx context.Context, src Source, ids []string) (out []string, err error) {
	var ask strings.Builder
	for _, id := range ids {
		if isObjectID(id) && len(id) == len(src.Base) {
			ask.WriteString(id + "\n")
		}
	}
	if ask.Len() == 0 {
		return nil, nil
	}
	said, err := g.output(ctx, call{gitDir: src.Repo, stdin: strings.NewReader(ask.String()), args: []string{"cat-file", "--batch-check"}})
	if err != nil {
		return nil, fmt.Errorf("look for commits in %q: %w", src.Repo, err)
	}
	for line := range strings.Lines(string(said)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "commit" {
			out = append(out, f[0])
		}
	}
	return out, nil
}

// basePrefix is where a copy keeps the commits that it was given.
const basePrefix = "refs/berth/base/"

// Tips lists the commits that the copy in dir was given, the newest ones; none
// when there is no copy yet.
func (g *Git) Tips(ctx context.Context, dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil {
		return nil, nil
	}
	out, err := g.output(ctx,
		call{gitDir: dir, args: []string{"for-each-ref", "--sort=-committerdate", "--count=50", "--format=%(objectname)", basePrefix}})
	return strings.Fields(string(out)), err
}

// TakePack takes a pack into the copy in dir, which it makes when it is missing,
// and makes sure that the commit base is there with all that belongs to it. An
// empty pack is none.
func (g *Git) TakePack(ctx context.Context, dir, base string, p Parts, pack io.Reader) error {
	if !isObjectID(base) {
		return fmt.Errorf("base %q is not a full commit id: %w", base, ErrInvalid)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// One that is there stays as it is; one that was cut off is completed.
	if err := g.initAt(ctx, dir, Source{Base: base}, "--bare"); err != nil {
		return err
	}
	for name, data := range map[string][]byte{"shallow": p.Shallow, "info/exclude": p.Exclude} {
		if err := replaceFile(filepath.Join(dir, filepath.FromSlash(name)), data); err != nil {
			return err
		}
	}
	var first [1]byte
	switch _, err := io.ReadFull(pack, first[:]); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return err
	default:
		in := io.MultiReader(bytes.NewReader(first[:]), pack)
		args := []string{"-c", "core.fsyncMethod=fsync", "-c", "core.fsync=all", "index-pack", "--stdin", "--fix-thin"}
		if err := g.run(ctx, call{gitDir: dir, stdin: in, args: args}); err != nil {
			return err
		}
	}
	// What earlier ones left is whole; only what is new is looked at.
	if err := g.run(ctx, call{gitDir: dir, args: []string{"rev-list", "--objects", "--quiet", base, "--not", "--glob=" + basePrefix + "*"}}); err != nil {
		return fmt.Errorf("the copy of the repository is not complete: %w", err)
	}
	return g.run(ctx, call{gitDir: dir, args: []string{"update-ref", "--no-deref", basePrefix + base, base}})
}

// replaceFile gives a file this content in one step; with none it is removed.
func replaceFile(path string, data []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if len(data) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
