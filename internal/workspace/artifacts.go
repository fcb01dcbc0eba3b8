package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// ArtifactLimits bound what is copied; zero fields mean the defaults.
type ArtifactLimits struct {
	FileBytes  int64 // default 1 GiB
	TotalBytes int64 // default 4 GiB
	Files      int   // default 10,000
}

func (l ArtifactLimits) orDefaults() ArtifactLimits {
	if l.FileBytes == 0 {
		l.FileBytes = 1 << 30
	}
	if l.TotalBytes == 0 {
		l.TotalBytes = 4 << 30
	}
	if l.Files == 0 {
		l.Files = 10_000
	}
	return l
}

// Artifact is a file that was copied.
type Artifact struct {
	Path      Path  `json:"path"`
	SizeBytes int64 `json:"size_bytes"`
}

// Artifacts is what CollectArtifacts did.
type Artifacts struct {
	Copied      []Artifact `json:"copied"`
	Skipped     []Skipped  `json:"skipped"`
	SkippedMore int        `json:"skipped_more,omitempty"`
	// Missing are the patterns that matched nothing.
	Missing []string `json:"missing"`
}

// CollectArtifacts copies the files that the patterns cover (see [Scope]; no
// pattern copies nothing) from the work tree to destDir, which is made, keeping
// their paths. Only regular files are copied, with mode 0600, directories get
// 0700; ignored files are copied as others are, and what is under a .git is
// not looked at. What cannot be copied is reported.
func CollectArtifacts(ctx context.Context, workDir, destDir string, patterns []string, limits ArtifactLimits) (_ Artifacts, err error) {
	c := &copier{limits: limits.orDefaults(), rep: &omissions{}, res: Artifacts{Copied: []Artifact{}, Missing: []string{}}}
	scope, err := ParseScope(patterns)
	if err != nil {
		return Artifacts{}, err
	}
	c.patterns, c.hits = scope.patterns, make([]bool, len(scope.patterns))
	if len(patterns) > 0 {
		if err := c.run(ctx, workDir, destDir); err != nil {
			return Artifacts{}, fmt.Errorf("collect artifacts: %w", err)
		}
	}
	for i, hit := range c.hits {
		if !hit {
			c.res.Missing = append(c.res.Missing, patterns[i])
		}
	}
	c.res.Skipped, c.res.SkippedMore = append([]Skipped{}, c.rep.skipped...), c.rep.unlisted
	return c.res, nil
}

type copier struct {
	limits   ArtifactLimits
	patterns []pattern
	hits     []bool
	src, dst *os.Root
	res      Artifacts
	rep      *omissions
	total    int64
	entries  int
}

func (c *copier) run(ctx context.Context, workDir, destDir string) (err error) {
	if c.src, err = openTree(workDir); err != nil {
		return err
	}
	defer c.src.Close()
	if err := os.MkdirAll(destDir, 0o700); err != nil {
		return err
	}
	if c.dst, err = os.OpenRoot(destDir); err != nil {
		return err
	}
	defer c.dst.Close()
	for queue := []string{"."}; len(queue) > 0; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		below, err := c.dir(ctx, queue[0])
		if err != nil {
			return err
		}
		queue = append(queue, below...)
	}
	return nil
}

// dir copies what is asked for from one directory and gives those below it.
func (c *copier) dir(ctx context.Context, dir string) (below []string, err error) {
	names, err := readNames(ctx, c.src, dir, maxEntries-c.entries)
	c.entries += len(names)
	if err == nil && c.entries >= maxEntries {
		err = fmt.Errorf("the tree has more than %d entries", maxEntries)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		c.rep.skip(dir, Unreadable, "cannot be read: "+reason(err))
		return nil, nil
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := path.Join(dir, name)
		if name == ".git" || len(p) >= maxPathBytes {
			continue
		}
		fi, err := c.src.Lstat(p)
		switch {
		case err != nil:
			c.rep.skip(p, Unreadable, "cannot be read: "+reason(err))
		case fi.IsDir():
			below = append(below, p)
		case c.asked(p):
			if err := c.file(ctx, p, fi); err != nil {
				return nil, err
			}
		}
	}
	return below, nil
}

// asked says whether a pattern covers the path, and marks all that do.
func (c *copier) asked(p string) bool {
	asked := false
	for i, pat := range c.patterns {
		if (Scope{patterns: []pattern{pat}}).Covers(p) {
			c.hits[i], asked = true, true
		}
	}
	return asked
}

func (c *copier) file(ctx context.Context, p string, fi fs.FileInfo) error {
	switch size := fi.Size(); {
	case fi.Mode()&fs.ModeSymlink != 0:
		c.rep.skip(p, Refused, "is a symbolic link")
	case !fi.Mode().IsRegular():
		c.rep.skip(p, Refused, special(fi.Mode()))
	case size > c.limits.FileBytes:
		c.rep.skip(p, TooLarge, fmt.Sprintf("%d bytes are more than one artifact may have (%d)", size, c.limits.FileBytes))
	case c.total+size > c.limits.TotalBytes:
		c.rep.skip(p, TooLarge, fmt.Sprintf("the artifacts together exceed %d bytes", c.limits.TotalBytes))
	case len(c.res.Copied) >= c.limits.Files:
		c.rep.skip(p, TooMany, fmt.Sprintf("there are more than %d artifacts", c.limits.Files))
	default:
		return c.copy(ctx, p, size)
	}
	return nil
}

// copy copies one file. An unreadable source is reported; a destination that
// cannot be written is an error.
func (c *copier) copy(ctx context.Context, p string, size int64) (err error) {
	in, n, err := contentOf(ctx, c.src, found{path: p, mode: modeFile, sizeBytes: size})
	if err != nil {
		c.rep.skip(p, Unreadable, "cannot be read: "+reason(err))
		return nil
	}
	defer in.Close()
	if err := c.dst.MkdirAll(filepath.FromSlash(path.Dir(p)), 0o700); err != nil {
		return err
	}
	// From an earlier try.
	if err := c.dst.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := c.dst.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err = io.Copy(out, io.LimitReader(in, n))
	cerr := out.Close()
	var rerr *readError
	switch {
	case errors.As(err, &rerr):
		c.rep.skip(p, Unreadable, "cannot be read: "+reason(rerr.err))
		return c.dst.Remove(p)
	case err != nil:
		return errors.Join(err, c.dst.Remove(p))
	case cerr != nil:
		return cerr
	}
	c.total += n
	c.res.Copied = append(c.res.Copied, Artifact{Path: Path(p), SizeBytes: n})
	return nil
}
