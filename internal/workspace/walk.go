package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"berth/jobs"
)

// maxEntries bounds how much of a tree is looked at, so that a task cannot use
// up the memory of the host by making names.
const maxEntries = 2_000_000

// found is a file or a symbolic link of the work tree.
type found struct {
	path      string
	mode      string
	sizeBytes int64
	live      bool // it may be written to while it is read
}

// survey is what a walk over the work tree saw.
type survey struct {
	tracked map[string]found // paths that the base has and that are still files, links or submodules
	fresh   []found          // new and not ignored, outer directories first
	apart   int              // new files that come back as artifacts
	kept    map[string]bool  // paths and directories not to be judged: the base's version stays
	omissions
}

// keeps says whether the base's version of a path stays for want of knowledge.
func (s *survey) keeps(p string) bool {
	if len(s.kept) == 0 {
		return false
	}
	for ; p != "."; p = path.Dir(p) {
		if s.kept[p] {
			return true
		}
	}
	return s.kept["."]
}

// candidate is an entry that the base does not decide about.
type candidate struct {
	found
	dir     bool
	special string // what it is, when it is neither file nor link
}

type walker struct {
	work      *os.Root
	base      tree
	ignore    *ignorer
	artifacts Scope    // unlike others, the zero one covers nothing
	below     string   // the work tree inside that of which the artifacts' paths are
	others    []string // directories that are no part of it
	out       *survey
	entries   int
	// inIgnored: directories that are ignored but hold tracked files.
	inIgnored map[string]bool
}

// walk looks at the whole work tree, one level of directories at a time, so
// that git is asked once a level what is ignored and ignored directories are
// never entered.
func (g *Git) walk(ctx context.Context, work *os.Root, gitDir string, base tree, ignore string, artifacts Scope) (_ *survey, err error) {
	ig, err := g.newIgnorer(gitDir, ignore)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ig.close()) }()
	w := &walker{work: work, base: base, ignore: ig, artifacts: artifacts, below: g.Below, others: g.Others, inIgnored: map[string]bool{},
		out: &survey{tracked: map[string]found{}, kept: map[string]bool{}}}
	for level := []string{"."}; len(level) > 0; {
		var candidates []candidate
		var ask []string
		for _, dir := range level {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			cs, err := w.list(ctx, dir)
			if err != nil {
				return nil, err
			}
			for _, c := range cs {
				if !w.inIgnored[dir] && !w.beside(c.path) {
					ask = append(ask, slashed(c))
				}
				candidates = append(candidates, c)
			}
		}
		ignored, err := ig.match(ctx, ask)
		if err != nil {
			return nil, err
		}
		level = w.sort(candidates, ignored)
	}
	return w.out, nil
}

func slashed(c candidate) string {
	if c.dir {
		return c.path + "/"
	}
	return c.path
}

// beside reports whether a path is the directory of the other work trees, or stands in there
// and is none of them. Nothing of that is of this work tree, and whatever is ignored, it is told.
func (w *walker) beside(p string) bool {
	return len(w.others) > 0 && (p == jobs.FurtherDir || strings.HasPrefix(p, jobs.FurtherDir+"/"))
}

// sort records the candidates and gives the directories of the next level.
func (w *walker) sort(candidates []candidate, ignored map[string]bool) []string {
	var next []string
	for _, c := range candidates {
		out := ignored[slashed(c)] || w.inIgnored[path.Dir(c.path)]
		switch {
		case c.dir && out && w.base.dirs[c.path]:
			w.inIgnored[c.path] = true
			next = append(next, c.path)
		case out:
		case c.dir:
			next = append(next, c.path)
		case c.special != "":
			w.out.skip(c.path, NoContent, c.special)
		case c.mode != modeLink && len(w.artifacts.patterns) > 0 && w.artifacts.Covers(path.Join(w.below, c.path)):
			w.out.apart++
		case w.beside(c.path):
			w.out.skipFile(c.path, c.sizeBytes, Beside, "stands in "+jobs.FurtherDir+", and is of no workspace")
		default:
			w.out.fresh = append(w.out.fresh, c.found)
		}
	}
	return next
}

// list looks at one directory: tracked files are recorded, what is left is
// given back.
func (w *walker) list(ctx context.Context, dir string) ([]candidate, error) {
	if strings.Count(dir, "/") >= maxKeptDepth {
		w.leave(dir, TooDeep, fmt.Sprintf("is deeper than %d directories", maxKeptDepth))
		return nil, nil
	}
	// What is looked at is looked at from here: from the top each look would open
	// every directory on the way.
	here, err := openDir(w.work, dir)
	if err != nil {
		w.leave(dir, Unreadable, "cannot be read: "+reason(err))
		return nil, nil
	}
	defer here.Close()
	names, err := readNames(ctx, here, ".", maxEntries-w.entries)
	w.entries += len(names)
	if err == nil && w.entries >= maxEntries {
		w.leave(dir, TooDeep, fmt.Sprintf("the tree has more than %d entries", maxEntries))
		return nil, nil
	}
	if err != nil {
		w.leave(dir, Unreadable, "cannot be read: "+reason(err))
		return nil, nil
	}
	if !w.inIgnored[dir] && slices.Contains(names, ".gitignore") {
		if err := w.ignore.add(here, dir); err != nil {
			return nil, err
		}
	}
	bare := w.becameBare(dir, names)
	var out []candidate
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := path.Join(dir, name)
		if name == ".git" || isGitOfTask(here, name) {
			if dir != "." {
				w.out.skip(p, NoContent, "belongs to an embedded git repository")
			}
			continue
		}
		if slices.Contains(w.others, p) {
			continue
		}
		if why := refusedPath(p, bare); why != "" {
			w.leave(p, Refused, why)
			continue
		}
		c, err := w.look(ctx, here, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			w.leave(p, Unreadable, "cannot be read: "+reason(err))
			continue
		}
		if c != nil {
			out = append(out, *c)
		}
	}
	return out, nil
}

// refusedPath says why a path cannot be stored, or "".
func refusedPath(p string, inBare bool) string {
	switch {
	case inBare && path.Base(p) == "HEAD":
		return "would make the directory a bare git repository, whose configuration git obeys"
	case len(p) >= maxPathBytes:
		return fmt.Sprintf("path is longer than %d bytes", maxPathBytes-1)
	}
	return refusedName(path.Base(p))
}

// look records the path when the base decides about it; otherwise it is a
// candidate.
func (w *walker) look(ctx context.Context, here *os.Root, p string) (*candidate, error) {
	fi, err := here.Lstat(path.Base(p))
	if err != nil {
		return nil, err
	}
	entry, tracked := w.base.entries[p]
	c := candidate{found: found{path: p, sizeBytes: fi.Size()}}
	switch m := fi.Mode(); {
	case m.IsDir() && tracked && entry.mode == modeGitlink:
		// A submodule stays the commit it was; nothing below it is looked at.
		w.out.tracked[p] = found{path: p, mode: modeGitlink}
		if names, err := readNames(ctx, here, path.Base(p), 1); err != nil || len(names) > 0 {
			w.out.skip(p, NoContent, "content of a submodule is not collected")
		}
		return nil, nil
	case m.IsDir():
		if why := refusedUnlessFile(path.Base(p), true); why != "" {
			w.leave(p, Refused, why)
			return nil, nil
		}
		c.dir = true
		return &c, nil
	case m.IsRegular():
		c.mode = modeFile
		if m.Perm()&0o100 != 0 {
			c.mode = modeExec
		}
	case m&fs.ModeSymlink != 0:
		c.mode = modeLink
		if why := refusedUnlessFile(path.Base(p), false); why != "" {
			w.leave(p, Refused, why)
			return nil, nil
		}
	default:
		c.special = special(m)
		if tracked {
			w.out.skip(p, NoContent, c.special)
			return nil, nil
		}
		return &c, nil
	}
	if tracked {
		w.out.tracked[p] = c.found
		return nil, nil
	}
	return &c, nil
}

// leave reports a path whose version in the base stays.
func (w *walker) leave(p string, kind Kind, why string) {
	w.out.skip(p, kind, why)
	w.out.kept[p] = true
}

func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "is a FIFO"
	case m&fs.ModeSocket != 0:
		return "is a socket"
	case m&fs.ModeDevice != 0:
		return "is a device"
	}
	return "is neither a file, a directory nor a symbolic link"
}

// becameBare says whether git would take the directory for a bare repository
// and did not in the base. A user who enters such a directory of a checkout
// and runs git there runs what its config says.
func (w *walker) becameBare(dir string, names []string) bool {
	if _, was := w.base.entries[path.Join(dir, "HEAD")]; was {
		return false
	}
	has := func(n string) bool { _, ok := slices.BinarySearch(names, n); return ok }
	return has("HEAD") && (has("objects") && has("refs") || has("commondir"))
}
