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
	"slices"
	"strings"
	"syscall"

	"berth/internal/sys/disk"

	"golang.org/x/sys/unix"
)

// GitOfTask is what a git directory of the task's is called in a kept tree:
// whoever enters a directory with a .git, a prompt of a shell alone, runs what
// its configuration says.
const GitOfTask = "git-of-the-task"

// maxKeptDepth bounds how deep a tree is kept: every level holds descriptors.
const maxKeptDepth = 200

// Kept is what [Keep] did.
type Kept struct {
	// Files and Bytes are what was copied. A tree that was renamed is not
	// counted.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Moved says that the tree was renamed, or is where it was.
	Moved bool `json:"moved,omitempty"`
	// Closed says that a tree that is where it was could not be gone through, so
	// that it is of mode 0 now.
	Closed bool `json:"closed,omitempty"`
	// Skipped are the first paths that could not be kept, SkippedMore counts the
	// others, and SkippedBytes is how long these files are together, as far as
	// that could be seen.
	Skipped      []Skipped `json:"skipped,omitempty"`
	SkippedMore  int       `json:"skipped_more,omitempty"`
	SkippedBytes int64     `json:"skipped_bytes,omitempty"`
	// Lost counts those of them that have a content, as far as that could be seen:
	// special files have none.
	Lost int `json:"lost,omitempty"`
}

// Keep brings the work tree of a task that has ended from one place to another,
// such as from a node's scratch directory to the attempt's: by a rename on the
// same file system, else by a copy. What is at to already, from an earlier try,
// is replaced; a tree that is at to itself stays there. One that is renamed or stays
// is closed as a whole where it cannot be gone through.
//
// No git obeys what is kept: a copy has no .git, and in a tree that is
// renamed it is called [GitOfTask], of mode 0. The same holds for embedded
// repositories; a directory that looks like a bare one loses its HEAD. Links are
// kept as links. A copy has no special files, and holes stay holes.
//
// What cannot be copied is in the report, and the rest is copied; a directory of
// a renamed tree that cannot be looked into is locked, and in the report. An error is
// about from or to themselves, or the context: then the report says how far it
// came, and what was copied is there. A tree that can be renamed is there as a
// whole, closed. from is not removed.
func Keep(ctx context.Context, from, to string) (_ Kept, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep the task's files: %w", err)
		}
	}()
	from, to = filepath.Clean(from), filepath.Clean(to)
	if sameDevice(from, filepath.Dir(to)) {
		k, whole := disarm(ctx, from)
		if errors.Is(whole, fs.ErrNotExist) {
			return k, whole
		}
		if from != to {
			if err := disk.RemoveTree(to); err != nil {
				return k, err
			}
			err = os.Rename(from, to)
		}
		if err == nil && whole != nil {
			if err := os.Chmod(to, 0); err != nil {
				return k, errors.Join(whole, err)
			}
			k.Closed = true
		}
		if !errors.Is(err, unix.EXDEV) { // a bind is another file system to rename(2)
			return k, err
		}
	}
	src, err := openTree(from)
	if err != nil {
		return Kept{}, err
	}
	defer src.Close()
	// Under another name until it is done: half a copy is not to pass for a tree
	// that was kept when this process is killed.
	part := to + partSuffix
	if err := disk.FreshDir(part); err != nil {
		return Kept{}, err
	}
	dst, err := os.OpenRoot(part)
	if err != nil {
		return Kept{}, err
	}
	defer dst.Close()
	k := &keeper{ctx: ctx, top: dst, names: map[[2]uint64]string{}, buf: make([]byte, 1<<20)}
	err = k.tree(src, dst, ".", 0)
	if err == nil || k.out.Files > 0 {
		err = errors.Join(err, disk.RemoveTree(to))
		if rerr := os.Rename(part, to); rerr != nil {
			return k.report(), errors.Join(err, rerr)
		}
	}
	return k.report(), err
}

// partSuffix ends the name of a tree that is being copied.
const partSuffix = ".part"

func sameDevice(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Lstat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev
}

// keeper copies a tree, or, without a destination, only disarms it.
type keeper struct {
	ctx     context.Context
	top     *os.Root             // of the destination, nil to disarm
	names   map[[2]uint64]string // in the destination, of files that have several
	entries int
	buf     []byte
	out     Kept
	rep     omissions
}

func (k *keeper) report() Kept {
	k.out.Skipped, k.out.SkippedMore = k.rep.skipped, k.rep.unlisted
	return k.out
}

func (k *keeper) skip(p string, size int64, why string) {
	k.rep.skip(p, Unreadable, why)
	k.out.SkippedBytes += size
	k.out.Lost++
}

// disarm takes the git directories of a tree out of git's sight.
func disarm(ctx context.Context, dir string) (Kept, error) {
	src, err := openTree(dir)
	if err != nil {
		return Kept{}, err
	}
	defer src.Close()
	k := &keeper{ctx: ctx}
	k.out.Moved = true
	err = k.tree(src, nil, ".", 0)
	return k.report(), err
}

// tree does one directory, src, whose copy is dst.
func (k *keeper) tree(src, dst *os.Root, dir string, depth int) error {
	names, err := readNames(k.ctx, src, ".", maxEntries-k.entries)
	if k.ctx.Err() != nil {
		return k.ctx.Err()
	}
	if k.entries += len(names); err == nil && k.entries >= maxEntries {
		err = fmt.Errorf("the tree has more than %d entries", maxEntries)
	}
	if err != nil {
		return k.unseen(src, ".", dir, err)
	}
	bare := looksBare(names)
	var taken map[string]bool
	for _, name := range names {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		p := path.Join(dir, name)
		if strings.EqualFold(name, ".git") || bare && name == "HEAD" {
			if k.top == nil {
				if taken == nil {
					taken = setOf(names)
				}
				if err := putAway(src, name, taken); err != nil {
					return err
				}
			}
			continue
		}
		if isGitOfTask(src, name) {
			continue // from before: a rename was tried first, or this by a runner that was killed
		}
		fi, err := src.Lstat(name)
		if err != nil {
			k.skip(p, 0, "cannot be read: "+reason(err))
			continue
		}
		if fi.IsDir() {
			if err := k.directory(src, dst, name, p, fi, depth); err != nil {
				return err
			}
		} else if k.top != nil {
			k.entry(src, dst, name, p, fi)
		}
	}
	return k.ctx.Err()
}

// looksBare says whether git takes a directory for a bare repository, see
// [walker.becameBare].
func looksBare(names []string) bool {
	return slices.Contains(names, "HEAD") && (slices.Contains(names, "objects") && slices.Contains(names, "refs") || slices.Contains(names, "commondir"))
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// putAway renames what git would obey, to a name that is free, and adds that to
// those taken.
func putAway(dir *os.Root, name string, taken map[string]bool) error {
	to := GitOfTask
	for i := 2; taken[to]; i++ {
		to = fmt.Sprintf("%s-%d", GitOfTask, i)
	}
	taken[to] = true
	if fi, err := dir.Lstat("."); err != nil {
		return err
	} else if fi.Mode().Perm()&0o700 != 0o700 {
		if err := dir.Chmod(".", 0o700); err != nil {
			return err
		}
	}
	if err := dir.Rename(name, to); err != nil {
		return err
	}
	if fi, err := dir.Lstat(to); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	return dir.Chmod(to, 0)
}

// directory does a directory below; the task may have taken away the
// permission to read it.
func (k *keeper) directory(src, dst *os.Root, name, p string, fi fs.FileInfo, depth int) error {
	from, err := openBelow(src, name, fi)
	if err == nil {
		defer from.Close()
		if depth >= maxKeptDepth {
			err = fmt.Errorf("is deeper than %d directories", maxKeptDepth)
		}
	}
	if err != nil {
		return k.unseen(src, name, p, err)
	}
	if k.top == nil {
		return k.tree(from, nil, p, depth+1)
	}
	if err = dst.Mkdir(name, 0o700); err == nil {
		var to *os.Root
		if to, err = dst.OpenRoot(name); err == nil {
			defer to.Close()
			return k.tree(from, to, p, depth+1)
		}
	}
	k.skip(p, 0, "cannot be copied: "+reason(err))
	return nil
}

// unseen reports a directory that could not be looked into. Where nothing is
// copied it is locked, since it may hold what git would obey.
func (k *keeper) unseen(parent *os.Root, name, p string, err error) error {
	if k.top != nil {
		k.skip(p, 0, "cannot be read: "+reason(err))
		return nil
	}
	k.skip(p, 0, "is of mode 0 now, because it could not be looked into: "+reason(err))
	return parent.Chmod(name, 0)
}

// openBelow opens the directory that was seen.
func openBelow(parent *os.Root, name string, seen fs.FileInfo) (*os.Root, error) {
	if seen.Mode().Perm()&0o700 != 0o700 {
		// It was seen with Lstat, and no process writes here any more.
		if err := parent.Chmod(name, 0o700); err != nil && seen.Mode().Perm()&0o500 != 0o500 {
			return nil, err
		}
	}
	return parent.OpenRoot(name)
}

// entry copies what is no directory.
func (k *keeper) entry(src, dst *os.Root, name, p string, fi fs.FileInfo) {
	switch m := fi.Mode(); {
	case m&fs.ModeSymlink != 0:
		target, err := src.Readlink(name)
		if err == nil {
			err = dst.Symlink(target, name)
		}
		if err != nil {
			k.skip(p, 0, "cannot be copied: "+reason(err))
			return
		}
		k.out.Files++
	case m.IsRegular():
		if err := k.file(src, dst, name, p, fi); err != nil {
			k.skip(p, fi.Size(), "cannot be copied: "+reason(err))
		}
	default:
		k.rep.skip(p, NoContent, special(m))
	}
}

// file copies a file, or makes the second name of one that was copied: a task
// can give one large file a thousand names.
func (k *keeper) file(src, dst *os.Root, name, p string, fi fs.FileInfo) (err error) {
	var id [2]uint64
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		id = [2]uint64{uint64(st.Dev), st.Ino} //nolint:unconvert // other types elsewhere
		if first, ok := k.names[id]; ok {
			if err := k.top.Link(first, p); err == nil {
				k.out.Files++
				return nil
			}
		}
	}
	if fi.Mode().Perm()&0o400 == 0 {
		if err := src.Chmod(name, 0o600); err != nil {
			return err
		}
	}
	in, fi, err := openRegular(src, name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|fi.Mode().Perm()&0o100)
	if err != nil {
		return err
	}
	n, err := k.content(out, in, fi.Size())
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, dst.Remove(name))
	}
	if err := dst.Chtimes(name, fi.ModTime(), fi.ModTime()); err != nil {
		return err
	}
	if id != [2]uint64{} {
		k.names[id] = p
	}
	k.out.Files++
	k.out.Bytes += n
	return nil
}

// content copies the parts of a file that are no holes, and returns how many
// bytes these are: a file of a terabyte may take none on the disk.
func (k *keeper) content(out, in *os.File, size int64) (copied int64, err error) {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		end := size
		switch {
		case errors.Is(err, unix.ENXIO): // only a hole is left
			begin = size
		case err != nil: // it cannot be asked
			begin = at
		default:
			if e, err := unix.Seek(int(in.Fd()), begin, unix.SEEK_HOLE); err == nil {
				end = min(e, size)
			}
		}
		for at = min(begin, size); at < end; {
			if err := k.ctx.Err(); err != nil {
				return copied, err
			}
			n, err := in.ReadAt(k.buf[:min(int64(len(k.buf)), end-at)], at)
			if n > 0 {
				if _, err := out.WriteAt(k.buf[:n], at); err != nil {
					return copied, err
				}
				at, copied = at+int64(n), copied+int64(n)
			}
			if errors.Is(err, io.EOF) && at < end {
				return copied, errors.New("became shorter while it was read")
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return copied, err
			}
		}
		at = max(at, end)
	}
	return copied, out.Truncate(size)
}
