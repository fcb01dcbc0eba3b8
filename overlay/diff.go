package overlay

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"berth/jobs"
)

// Change is one path that differs.
type Change struct {
	Kind ChangeKind `json:"change"`
	Path string     `json:"path"`
	// Setuid tells of a file that runs with the rights of its owner or group.
	Setuid bool `json:"setuid,omitempty"`
}

// ChangeKind is what has become of a path.
type ChangeKind string

// What can become of a path. Written is one of which it is not known whether
// the image has it.
const (
	Added   ChangeKind = "added"
	Changed ChangeKind = "changed"
	Deleted ChangeKind = "deleted"
	Written ChangeKind = "written"
)

// Diff lists what the overlay's files are over those of its image, or over
// those of a snapshot, in the order of the paths. Of a directory that is gone
// or new, what was in it is not listed when it is gone, and is when it is new. Directories
// that only lead to what has changed are not in it.
func (s *Set) Diff(ctx context.Context, name, since string) ([]Change, error) {
	i, err := s.made(name)
	if err != nil {
		return nil, err
	}
	old := tree{}
	if since != "" {
		m, err := i.snapshotOf(since)
		if err != nil {
			return nil, err
		}
		if old, err = s.readTree(ctx, m.Driver, layerPath(snapshotDir(i.Dir, since), m.Driver)); err != nil {
			return nil, fmt.Errorf("read snapshot %s of overlay %s: %w", since, name, err)
		}
	}
	src, err := s.read(ctx, name, "diff")
	if err != nil {
		return nil, err
	}
	defer src.release()
	now, err := s.readTree(ctx, src.mark.Driver, src.layer)
	if err != nil {
		return nil, unreadable(name, err)
	}
	base := s.imageOf(ctx, src.mark)
	return diff(old, now, base), nil
}

// unreadable is the error for a layer that cannot be read.
func unreadable(name string, err error) error {
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: "read overlay " + name, Err: err, Hint: jobs.HintOf(err)}
}

// tree is the upper directory of a layer, in the order of the paths.
type tree struct {
	list   []*entry
	at     map[string]*entry
	inside bool // it was read in a user namespace, because it had to be
}

func (t *tree) add(e *entry) {
	t.list = append(t.list, e)
	t.at[e.path] = e
}

func readTree(ctx context.Context, driver, layer string) (tree, error) {
	t := tree{at: map[string]*entry{}}
	l, err := openLayer(driver, layer)
	if err != nil {
		return t, err
	}
	defer l.close()
	err = l.walk(func(e *entry) error {
		if !e.isOwn() {
			t.add(e)
		}
		return ctx.Err()
	})
	return t, err
}

// lower is the image below a layer.
type lower interface {
	// has tells whether the image has a path; known is false where that cannot
	// be told.
	has(p string) (has, known bool)
	// children are the names in a directory of the image.
	children(p string) []string
	// stat is what the image has at p; nil is nothing, or nothing that is known.
	stat(p string) *node
	// bytes is how much its files hold, 0 where that cannot be told.
	bytes() int64
}

// node is a path of an image.
type node struct {
	mode     uint32 // st_mode
	uid, gid int    // see [entry]; -1 where they do not show in containers
}

// unknownLower is an image that cannot be read here.
type unknownLower struct{}

func (unknownLower) has(string) (has, known bool) { return false, false }
func (unknownLower) children(string) []string     { return nil }
func (unknownLower) stat(string) *node            { return nil }
func (unknownLower) bytes() int64                 { return 0 }

// hidden tells whether what the image has at p cannot be seen through t,
// because of what t has above p.
func (t tree) hidden(p string) bool {
	for d := parent(p); d != ""; d = parent(d) {
		if e := t.at[d]; e != nil && (e.whiteout || e.opaque || !e.isDir()) {
			return true
		}
	}
	return false
}

func parent(p string) string {
	d := path.Dir(p)
	if d == "." {
		return ""
	}
	return d
}

// has tells whether p is there, seen through t.
func (t tree) has(p string, base lower) (has, known bool) {
	if e := t.at[p]; e != nil {
		return !e.whiteout, true
	}
	if t.hidden(p) {
		return false, true
	}
	return base.has(p)
}

func diff(old, now tree, base lower) []Change {
	found := map[string]ChangeKind{}
	gone := func(p string) { // unless what leads to it is gone as well
		for d := parent(p); d != ""; d = parent(d) {
			if found[d] == Deleted {
				return
			}
		}
		found[p] = Deleted
	}
	for _, e := range now.list {
		was, known := old.has(e.path, base)
		before := old.at[e.path]
		switch {
		case e.whiteout:
			if was || !known {
				gone(e.path)
			}
			continue
		case known && !was:
			found[e.path] = Added
		case before != nil && same(before, e), before == nil && e.isDir() && !altered(e, base.stat(e.path)):
		case known:
			found[e.path] = Changed
		default:
			found[e.path] = Written
		}
		if !e.isDir() || !e.opaque && !now.hidden(e.path) {
			continue
		}
		// What the image has here is hidden, but for what was written again.
		for _, name := range base.children(e.path) {
			p := path.Join(e.path, name)
			if was, _ := old.has(p, base); was && now.at[p] == nil {
				gone(p)
			}
		}
	}
	for _, e := range old.list {
		if e.whiteout || now.at[e.path] != nil {
			if e.whiteout && now.at[e.path] == nil { // it shows through again
				if has, _ := now.has(e.path, base); has {
					found[e.path] = Added
				}
			}
			continue
		}
		if has, _ := now.has(e.path, base); !has {
			gone(e.path)
		} else if !e.isDir() {
			found[e.path] = Changed
		}
	}
	out := make([]Change, 0, len(found))
	for p, k := range found {
		e := now.at[p]
		setuid := e != nil && e.mode&syscall.S_IFMT == syscall.S_IFREG && e.mode&(syscall.S_ISUID|syscall.S_ISGID) != 0
		out = append(out, Change{Kind: k, Path: "/" + p, Setuid: setuid && k != Deleted})
	}
	slices.SortFunc(out, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// same tells whether two entries of a path are alike as far as can be seen
// without reading them.
func same(a, b *entry) bool {
	if a.mode != b.mode || a.uid != b.uid || a.gid != b.gid {
		return false
	}
	if a.isDir() {
		return true
	}
	return a.size == b.size && a.mtime == b.mtime && a.link == b.link && a.rdev == b.rdev
}

// altered tells whether a directory is another one than the image's, by more
// than what is in it. Files of images are root's in containers unless they
// were unpacked; a copy that an ordinary user has made is its own.
func altered(e *entry, n *node) bool {
	if n == nil {
		return false
	}
	mode := n.mode
	if n.uid < 0 && e.mode == mode|0o700 { // as the container program unpacks it
		mode = e.mode
	}
	return mode != e.mode || e.uid != 0 && e.uid != n.uid || e.gid != 0 && e.gid != n.gid
}

// imageOf is the image of an overlay, as far as it can be read here.
func (s *Set) imageOf(ctx context.Context, m *Mark) lower {
	if m.Image == "" {
		return unknownLower{}
	}
	l, err := readImage(ctx, s.On, m)
	if err != nil {
		s.say("the image %s cannot be looked at (%v): of what was written it is not known whether it is new", m.Image, err)
		return unknownLower{}
	}
	return l
}
