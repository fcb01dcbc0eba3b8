package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"berth/internal/sys/disk"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// ArtifactLimits bound what is copied; zero fields mean the defaults. What
// bounds artifacts else is the space: some is left to others.
type ArtifactLimits struct {
	FileBytes  int64 // default none
	TotalBytes int64 // default none
	Files      int   // default 1,000,000
	// Link makes hard links in place of copies where that is the same file
	// system and the tree has the file alone. No process may write to the tree any more.
	Link bool
	// Others says that the destination has other files: a file that is there already
	// stays as it is, and one that is another is reported.
	Others bool
}

func (l ArtifactLimits) orDefaults() ArtifactLimits {
	if l.FileBytes == 0 {
		l.FileBytes = math.MaxInt64
	}
	if l.TotalBytes == 0 {
		l.TotalBytes = math.MaxInt64
	}
	if l.Files == 0 {
		l.Files = 1_000_000
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
	// Omitted is the same for the job's record.
	Omitted []jobs.Omission `json:"-"`
	// Missing are the patterns that matched nothing.
	Missing []string `json:"missing"`
}

// CollectArtifacts copies the files that the patterns cover (see [Scope]; no
// pattern copies nothing) from the work tree to destDir, which is made, keeping
// their paths. Only regular files are copied, with mode 0600, directories get
// 0700, and holes stay holes; ignored files are copied as others are, and what is
// under a .git is not looked at, nor a directory below which no pattern reaches.
// What cannot be copied is reported. When the context ends, so does it, with the
// context's error and what was copied by then.
func CollectArtifacts(ctx context.Context, workDir, destDir string, patterns []string, limits ArtifactLimits) (_ Artifacts, err error) {
	c := &copier{limits: limits.orDefaults(), dest: destDir, rep: &omissions{}, res: Artifacts{Copied: []Artifact{}, Missing: []string{}}}
	scope, err := ParseScope(patterns)
	if err != nil {
		return Artifacts{}, err
	}
	c.patterns, c.hits = scope.patterns, make([]bool, len(scope.patterns))
	if len(patterns) > 0 {
		if err = c.run(ctx, workDir); err != nil {
			err = fmt.Errorf("collect artifacts: %w", err)
		}
	}
	for i, hit := range c.hits {
		if !hit && err == nil {
			c.res.Missing = append(c.res.Missing, patterns[i])
		}
	}
	c.res.Skipped, c.res.SkippedMore = append([]Skipped{}, c.rep.skipped...), c.rep.unlisted
	c.res.Omitted = c.rep.omitted(jobs.OfArtifacts)
	return c.res, err
}

type copier struct {
	limits   ArtifactLimits
	patterns []pattern
	hits     []bool
	dest     string
	src, dst *os.Root
	res      Artifacts
	rep      *omissions
	total    int64
	entries  int
	buf      []byte
}

func (c *copier) run(ctx context.Context, workDir string) (err error) {
	if c.src, err = openTree(workDir); err != nil {
		return err
	}
	defer c.src.Close()
	if err := os.MkdirAll(c.dest, 0o700); err != nil {
		return err
	}
	if c.dst, err = os.OpenRoot(c.dest); err != nil {
		return err
	}
	defer c.dst.Close()
	return c.dir(ctx, c.src, ".", 0)
}

// dir copies what is asked for from one directory, and then from those below,
// with one directory of each level open.
func (c *copier) dir(ctx context.Context, src *os.Root, dir string, depth int) error {
	names, err := readNames(ctx, src, ".", maxEntries-c.entries)
	c.entries += len(names)
	if ctx.Err() != nil {
		c.rep.skip(dir, NoTime, "the time was up")
		return ctx.Err()
	}
	if err == nil && c.entries >= maxEntries {
		c.rep.skip(dir, TooDeep, fmt.Sprintf("the tree has more than %d entries", maxEntries))
		return nil
	}
	if err != nil {
		c.rep.skip(dir, Unreadable, "cannot be read: "+reason(err))
		return nil
	}
	bare := looksBare(names)
	below := map[string]fs.FileInfo{}
	for _, name := range names {
		p := path.Join(dir, name)
		if err := ctx.Err(); err != nil {
			c.rep.skip(p, NoTime, "the time was up")
			return err
		}
		if strings.EqualFold(name, ".git") || isGitOfTask(src, name) {
			continue
		}
		fi, err := src.Lstat(name)
		switch {
		case bare && name == "HEAD" && c.asked(p):
			c.rep.skip(p, Refused, refusedPath(p, bare))
		case bare && name == "HEAD":
		case err != nil:
			c.rep.skip(p, Unreadable, "cannot be read: "+reason(err))
		case fi.IsDir() && !c.reaches(p):
		case fi.IsDir() && (depth >= maxKeptDepth || len(p) >= maxPathBytes):
			c.rep.skip(p, TooDeep, fmt.Sprintf("is deeper than %d directories", maxKeptDepth))
		case fi.IsDir():
			below[name] = fi
		case c.asked(p):
			if err := c.file(ctx, src, name, p, fi); err != nil {
				return err
			}
		}
	}
	for _, name := range names {
		fi := below[name]
		if fi == nil {
			continue
		}
		if err := c.sub(ctx, src, name, path.Join(dir, name), fi, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) sub(ctx context.Context, parent *os.Root, name, p string, seen fs.FileInfo, depth int) error {
	src, err := openSeen(parent, name, seen)
	if err != nil {
		c.rep.skip(p, Unreadable, "cannot be read: "+reason(err))
		return nil
	}
	defer src.Close()
	return c.dir(ctx, src, p, depth)
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

func (c *copier) covered(p string) bool { return Scope{patterns: c.patterns}.Covers(p) }

// reaches says whether a pattern can cover something below the directory.
func (c *copier) reaches(dir string) bool {
	parts := strings.Split(dir, "/")
	for _, p := range c.patterns {
		if p.reaches(parts) {
			return true
		}
	}
	return false
}

// file copies one file: a name of the directory src, or a path below it. What
// cannot be copied is reported; an error is about the destination.
func (c *copier) file(ctx context.Context, src *os.Root, name, p string, fi fs.FileInfo) error {
	size := fi.Size()
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		c.link(src, name, p)
	case !fi.Mode().IsRegular():
		c.rep.skip(p, NoContent, special(fi.Mode()))
	case size > c.limits.FileBytes:
		c.rep.skipFile(p, size, TooLarge, fmt.Sprintf("%d bytes are more than one artifact may have (%d)", size, c.limits.FileBytes))
	case size > c.limits.TotalBytes-c.total:
		c.rep.skipFile(p, size, TooLarge, fmt.Sprintf("the artifacts together exceed %d bytes", c.limits.TotalBytes))
	case len(c.res.Copied) >= c.limits.Files:
		c.rep.skipFile(p, size, TooMany, fmt.Sprintf("there are more than %d artifacts", c.limits.Files))
	case len(p) >= maxPathBytes:
		c.rep.skipFile(p, size, TooDeep, fmt.Sprintf("path is longer than %d bytes", maxPathBytes-1))
	default:
		return c.copy(ctx, src, name, p, fi)
	}
	return nil
}

// link leaves a symbolic link out. Nothing is lost where it names what is an
// artifact itself, judged by its words.
func (c *copier) link(src *os.Root, name, p string) {
	target, err := src.Readlink(name)
	if err == nil && len(c.patterns) > 0 && !escapes(p, target) && c.covered(path.Join(path.Dir(p), target)) {
		c.rep.skip(p, NoContent, "is a symbolic link to an artifact")
		return
	}
	c.rep.skip(p, Link, "is a symbolic link")
}

func (c *copier) copy(ctx context.Context, src *os.Root, name, p string, fi fs.FileInfo) error {
	if err := c.dst.MkdirAll(filepath.FromSlash(path.Dir(p)), 0o700); err != nil {
		return c.unwritten(p, fi, err)
	}
	_, herr := c.dst.Lstat(p)
	there := !errors.Is(herr, fs.ErrNotExist) // from an earlier try, or another file
	if c.limits.Link && !there && c.hardLink(src, name, p, fi) {
		c.took(p, fi.Size())
		return nil
	}
	in, opened, err := openRegular(src, name)
	if err == nil && opened.Size() > fi.Size() {
		err = errors.Join(errors.New("grew while it was read"), in.Close())
	}
	if err != nil {
		c.rep.skipFile(p, fi.Size(), Unreadable, "cannot be read: "+reason(err))
		return nil
	}
	defer in.Close()
	if there && c.has(ctx, p, in) {
		c.took(p, opened.Size())
		return nil
	}
	if there && c.limits.Others {
		c.rep.skipFile(p, fi.Size(), Refused, "another file of that name is in "+c.dest)
		return nil
	}
	if why := lacksSpace(c.dest, opened); why != "" {
		c.rep.skipFile(p, fi.Size(), NoSpace, why)
		return nil
	}
	if err := c.dst.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c.unwritten(p, fi, err)
	}
	out, err := c.dst.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return c.unwritten(p, fi, err)
	}
	if c.buf == nil {
		c.buf = make([]byte, 1<<20)
	}
	if disk.Clone(out, in) != nil {
		_, err = (&keeper{ctx: ctx, buf: c.buf}).content(out, in, opened.Size())
	}
	if err = errors.Join(err, out.Close()); err == nil {
		c.took(p, opened.Size())
		return nil
	}
	err = errors.Join(err, c.dst.Remove(p))
	if ctx.Err() != nil {
		c.rep.skipFile(p, fi.Size(), NoTime, "the time was up")
		return ctx.Err()
	}
	return c.unwritten(p, fi, err)
}

// has tells whether the destination has the content of an open file already.
func (c *copier) has(ctx context.Context, p string, in *os.File) bool {
	have, fi, err := openRegular(c.dst, p)
	if err != nil {
		return false
	}
	defer have.Close()
	want, err := in.Stat()
	if err != nil || want.Size() != fi.Size() {
		return false
	}
	if os.SameFile(want, fi) {
		return true
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < want.Size() && ctx.Err() == nil; {
		n, _ := in.ReadAt(a, at)
		m, _ := have.ReadAt(b, at)
		if n == 0 || !bytes.Equal(a[:n], b[:m]) {
			return false
		}
		at += int64(n)
	}
	return ctx.Err() == nil
}

func (c *copier) took(p string, size int64) {
	c.total += size
	c.res.Copied = append(c.res.Copied, Artifact{Path: Path(p), SizeBytes: size})
}

// unwritten reports a file that was not copied. Another that is smaller may be.
func (c *copier) unwritten(p string, fi fs.FileInfo, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		c.rep.skipFile(p, fi.Size(), NoSpace, "cannot be written: "+reason(err))
	} else {
		c.rep.skipFile(p, fi.Size(), Unreadable, "cannot be copied: "+reason(err))
	}
	return nil
}

// hardLink makes the file of the tree the copy, when nothing else has it.
func (c *copier) hardLink(src *os.Root, name, p string, seen fs.FileInfo) bool {
	st, ok := seen.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink != 1 || int(st.Uid) != os.Geteuid() || seen.Mode().Perm()&0o111 != 0 {
		return false // its mode means something, or the file has other names or another owner
	}
	dir, err := src.Open(".")
	if err != nil {
		return false
	}
	defer dir.Close()
	to := filepath.Join(c.dest, filepath.FromSlash(p))
	if unix.Linkat(int(dir.Fd()), name, unix.AT_FDCWD, to, 0) != nil {
		return false
	}
	fi, err := os.Lstat(to)
	if err == nil && os.SameFile(fi, seen) && os.Chmod(to, 0o600) == nil {
		return true
	}
	_ = os.Remove(to)
	return false
}

// lacksSpace says why a file is not begun below dest: what it takes is not there, or
// would leave nothing to the records that are written beside it.
func lacksSpace(dest string, fi fs.FileInfo) string {
	var there unix.Statfs_t
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || unix.Statfs(dest, &there) != nil || there.Blocks == 0 {
		return ""
	}
	block := uint64(there.Bsize)
	needs, left, margin := uint64(st.Blocks)*512, there.Bavail*block, min(there.Blocks*block/20, 1<<30)
	if needs+margin <= left {
		return ""
	}
	return fmt.Sprintf("needs %s, and %s are left, of which %s are kept free",
		jobs.Bytes(needs).Rough(), jobs.Bytes(left).Rough(), jobs.Bytes(margin).Rough())
}
