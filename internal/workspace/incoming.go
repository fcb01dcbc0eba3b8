package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"

	"golang.org/x/sys/unix"
)

// incomingPrefix is how new objects are called in the user's repository until
// they are complete. git's own begin with tmp_objdir-, and git prune removes
// such directories when they are old.
const incomingPrefix = "tmp_objdir-berth-"

// incoming is a directory in the user's objects that git unpacks into, as
// git receive-pack has one: what fails there leaves nothing.
type incoming struct{ objects, dir string }

func openIncoming(src Source) (*incoming, error) {
	in := &incoming{objects: filepath.Join(src.Repo, "objects")}
	var err error
	in.dir, err = makeTagged(in.objects, incomingPrefix)
	return in, err
}

func (in *incoming) close() error { return disk.RemoveTree(in.dir) }

// env has git write there and read the repository's own objects.
func (in *incoming) env() []string { return objectsIn(in.dir, in.objects) }

// objectsIn has git write objects into dir and read those of others, too.
func objectsIn(dir string, others ...string) []string {
	for i, other := range others {
		if strings.ContainsAny(other, ":\"\n\\") {
			others[i] = quote(other)
		}
	}
	return []string{"GIT_OBJECT_DIRECTORY=" + dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + strings.Join(others, ":")}
}

// migrate moves the objects to where git finds them. One that is there is the
// same one. The index of a pack comes last: with it git knows the pack.
func (in *incoming) migrate() error {
	return errors.Join(in.files("pack"), in.loose())
}

func (in *incoming) loose() error {
	dirs, err := os.ReadDir(in.dir)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if len(d.Name()) != 2 {
			continue
		}
		// Whole, with the mode and group that git gave it, where there is none.
		if os.Rename(filepath.Join(in.dir, d.Name()), filepath.Join(in.objects, d.Name())) == nil {
			continue
		}
		if err := in.files(d.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (in *incoming) files(below string) error {
	entries, err := os.ReadDir(filepath.Join(in.dir, below))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	isIndex := func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".idx") }
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		switch {
		case isIndex(a) == isIndex(b):
			return 0
		case isIndex(a):
			return 1
		}
		return -1
	})
	if err := os.MkdirAll(filepath.Join(in.objects, below), 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(in.objects, below, e.Name())
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(filepath.Join(in.dir, below, e.Name()), to); err != nil {
			return err
		}
	}
	return nil
}

// freeBytes is the space that this user can have in the file system of a
// directory; a quota is not in it everywhere. Replaced in tests.
var freeBytes = func(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	if st.Blocks == 0 {
		return 0, errors.New("the file system does not tell its size")
	}
	free := st.Bavail
	if os.Geteuid() == 0 {
		free = st.Bfree
	}
	return int64(uint64(free) * uint64(st.Bsize)), nil //nolint:unconvert // other types elsewhere
}

// someSpace is what a result takes besides its bundle, at least: objects that
// are stored one by one, and directories for them.
const someSpace = 256 << 10

// askSpace asks for the space of a result before anything is written.
func askSpace(src Source, branch, bundle string) error {
	fi, err := os.Stat(bundle)
	if err != nil {
		return nil // whoever opens it says so
	}
	free, err := freeBytes(filepath.Join(src.Repo, "objects"))
	if need := fi.Size() + someSpace; err == nil && free < need {
		return &Error{Kind: ErrSpace, Tip: makeSpace,
			Msg: fmt.Sprintf("branch %q needs %d bytes in the file system of %q, which has %d bytes left", branch, need, src.Repo, free)}
	}
	return nil
}

const makeSpace = "remove what is not needed there, then berth collect JOB"

// noSpace says in words that git found the file system or the quota full.
func noSpace(src Source, branch string, err error) error {
	var ge *GitError
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.As(err, &ge) &&
		(strings.Contains(ge.Stderr, "No space left on device") || strings.Contains(ge.Stderr, "Disk quota exceeded"))
	if !full {
		return err
	}
	return &Error{Kind: ErrSpace, Err: err, Tip: makeSpace,
		Msg: fmt.Sprintf("branch %q has no space in %q: the file system or your quota there is full", branch, src.Repo)}
}

// lacksObjects says in words that the base is there and its tree is not.
func lacksObjects(src Source, err error) error {
	if exitCode(err) <= 0 {
		return err
	}
	return &Error{Kind: ErrUnknownBase, Err: err,
		Msg: fmt.Sprintf("the repository at %q lacks objects of commit %s, or they are damaged: %v", src.Repo, src.Base, err),
		Tip: "run `git fsck` there, and fetch what it misses"}
}

// A temporary directory has the name of its process, so that a later process
// can tell that this one was killed.

// unprovenAge is how old such a directory must be where its process cannot be
// looked for.
const unprovenAge = 24 * time.Hour

const tagSep = "+"

// tagOf is the part of the name that says whose it is.
func tagOf(p lease.Process) string {
	boot, ns, _ := strings.Cut(p.BootID, "/")
	parts := []string{tagged(p.Host), tagged(boot), tagged(ns), strconv.Itoa(p.PID), tagged(p.Start)}
	return strings.Join(parts, tagSep) + tagSep
}

// tagged keeps what a name may hold.
func tagged(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r <= ' ' || r == 0x7f || strings.ContainsRune(tagSep, r) {
			return '_'
		}
		return r
	}, s)
}

func makeTagged(dir, prefix string) (string, error) {
	return os.MkdirTemp(dir, prefix+tagOf(lease.Self()))
}

// sweepTagged removes directories of processes that are provably gone, or of
// which that cannot be told and that are old. What it cannot remove stays for
// whoever comes next. With dry it only says what there is.
func sweepTagged(dir, prefix string, dry bool) (found []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	me := lease.Self()
	for _, e := range entries {
		tag, ok := strings.CutPrefix(e.Name(), prefix)
		path := filepath.Join(dir, e.Name())
		if ok && e.IsDir() && abandoned(e, tag, me) && (dry || disk.RemoveTree(path) == nil) {
			found = append(found, path)
		}
	}
	return found
}

// Abandoned removes, from an attempt's directory, quarantines of clients that
// were killed, and says which.
func Abandoned(attemptDir string, dry bool) []string {
	return sweepTagged(attemptDir, quarantinePrefix, dry)
}

func abandoned(e fs.DirEntry, tag string, me lease.Process) bool {
	if f := strings.Split(tag, tagSep); len(f) == 6 {
		pid, _ := strconv.Atoi(f[3])
		p := lease.Process{Host: f[0], BootID: f[1] + "/" + f[2], PID: pid, Start: f[4]}
		me.Host = tagged(me.Host)
		switch {
		case p.Gone(me):
			return true
		case p.Near(me):
			return false
		}
	}
	fi, err := e.Info()
	return err == nil && time.Since(fi.ModTime()) > unprovenAge
}
