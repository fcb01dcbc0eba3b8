package overlay

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// Patch writes what an overlay has changed in text files as a unified diff,
// over its image or a snapshot. Its head, which programs that apply it pass
// over, lists what a patch cannot hold; how many that are is returned. The diff
// is made by git, of plain files in a directory of its own ($TMPDIR, else /tmp).
func (s *Set) Patch(ctx context.Context, name, since string, w io.Writer) (leftOut int, err error) {
	p := &patch{set: s, over: "its image"}
	i, err := s.made(name)
	if err != nil {
		return 0, err
	}
	if since != "" {
		m, err := i.snapshotOf(since)
		if err != nil {
			return 0, err
		}
		p.over = "its snapshot " + since
		p.old = &source{name: name, mark: m, layer: layerPath(snapshotDir(i.Dir, since), m.Driver)}
		if p.oldTree, err = s.survey(ctx, p.old); err != nil {
			return 0, err
		}
	}
	if p.now, err = s.read(ctx, name, "export"); err != nil {
		return 0, err
	}
	defer p.now.release()
	if p.nowTree, err = s.survey(ctx, p.now); err != nil {
		return 0, err
	}
	if p.base, err = readImage(ctx, s.On, p.now.mark); err != nil {
		return 0, &jobs.Error{Kind: jobs.KindConfig, Msg: "a patch of overlay " + name + " needs its image, " + p.now.mark.Image, Err: err,
			Hint: "berth overlay show " + name + " tells where it was; a tar can be exported without it"}
	}
	if p.dir, err = os.MkdirTemp("", "berth-patch-*"); err != nil {
		return 0, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for a patch", Err: err, Hint: "set TMPDIR to a directory that has room"}
	}
	defer func() { err = errors.Join(err, disk.RemoveTree(p.dir)) }()
	p.choose()
	if err := p.fetch(ctx); err != nil {
		return 0, unreadable(name, err)
	}
	if err := p.lay(); err != nil {
		return 0, fmt.Errorf("lay out a patch: %w", err)
	}
	if err := p.head(w, name); err != nil {
		return 0, err
	}
	return len(p.not), p.diff(ctx, w)
}

type patch struct {
	set              *Set
	over             string
	now, old         *source // old is nil over an image
	nowTree, oldTree tree
	base             lower
	dir              string
	root             *os.Root // dir
	before, after    map[string]bool
	not              []string // what cannot be held, for the head
	open             func(p string) (io.ReadCloser, error)
}

// Below the directory of a patch: both sides of it, and what they are made of.
const (
	sideBefore = "a"
	sideAfter  = "b"
	fromImage  = "image"
	fromNow    = "now"
	fromOld    = "old"
)

// choose finds out which files are on either side.
func (p *patch) choose() {
	p.before, p.after = map[string]bool{}, map[string]bool{}
	for _, c := range diff(p.oldTree, p.nowTree, p.base) {
		at := strings.TrimPrefix(c.Path, "/")
		if strings.ContainsFunc(at, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			p.cannot(c.Kind, at, "a name that cannot be in it")
			continue
		}
		was, is := p.oldMode(at), uint32(0)
		if e := p.nowTree.at[at]; e != nil && !e.whiteout {
			is = e.mode
		} else if c.Kind != Deleted { // the image shows through again
			if n := p.base.stat(at); n != nil {
				is = n.mode
			}
		}
		p.side(c.Kind, at, was, is)
	}
}

func (p *patch) cannot(k ChangeKind, at, what string) {
	p.not = append(p.not, fmt.Sprintf("%s %s: %q", k, what, "/"+at))
}

// side puts a changed path on the sides where it is a file.
func (p *patch) side(k ChangeKind, at string, was, is uint32) {
	const dir, file = unix.S_IFDIR, unix.S_IFREG
	wasType, isType := was&unix.S_IFMT, is&unix.S_IFMT
	switch {
	case wasType == dir && isType == dir:
		p.cannot(k, at, "mode or owner of a directory")
		return
	case isType == dir: // what is in it is listed by itself
		if !slices.ContainsFunc(p.nowTree.list, func(e *entry) bool { return parent(e.path) == at }) {
			p.cannot(k, at, "empty directory")
		}
	case isType != 0 && isType != file:
		p.cannot(k, at, "link or special file")
	}
	switch wasType {
	case dir:
		p.below(at)
	case file:
		p.before[at] = true
	case 0:
	default:
		if isType == 0 || isType == file {
			p.cannot(k, at, "link or special file")
		}
	}
	if isType == file {
		p.after[at] = true
	}
}

// below puts all files of a directory that is gone on the side before.
func (p *patch) below(dir string) {
	names := slices.Clone(p.base.children(dir))
	for _, e := range p.oldTree.list {
		if parent(e.path) == dir {
			names = append(names, path.Base(e.path))
		}
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		at := path.Join(dir, n)
		switch mode := p.oldMode(at); mode & unix.S_IFMT {
		case 0:
		case unix.S_IFDIR:
			p.below(at)
		case unix.S_IFREG:
			p.before[at] = true
		default:
			p.cannot(Deleted, at, "link or special file")
		}
	}
}

// oldMode is what was at a path, 0 is nothing.
func (p *patch) oldMode(at string) uint32 {
	if e := p.oldTree.at[at]; e != nil {
		if e.whiteout {
			return 0
		}
		return e.mode
	}
	if p.oldTree.hidden(at) {
		return 0
	}
	if n := p.base.stat(at); n != nil {
		return n.mode
	}
	return 0
}

// fetch brings what either side is made of into the directory.
func (p *patch) fetch(ctx context.Context) (err error) {
	if p.root, err = os.OpenRoot(p.dir); err != nil {
		return err
	}
	var image []string
	old, now := map[string]bool{}, map[string]bool{}
	for at := range p.before {
		if p.oldTree.at[at] != nil {
			old[at] = true
		} else {
			image = append(image, at)
		}
	}
	for at := range p.after {
		if p.nowTree.at[at] != nil {
			now[at] = true
		} else if !slices.Contains(image, at) {
			image = append(image, at)
		}
	}
	slices.Sort(image)
	if p.open, err = p.base.fetch(ctx, p.set.On, image, filepath.Join(p.dir, fromImage)); err != nil {
		return err
	}
	if p.old != nil {
		if err := p.take(ctx, p.old, p.oldTree, old, fromOld); err != nil {
			return err
		}
	}
	return p.take(ctx, p.now, p.nowTree, now, fromNow)
}

// take writes wanted files of a layer, each under the number that it has in
// the tree: names there may be anything.
func (p *patch) take(ctx context.Context, src *source, t tree, wanted map[string]bool, to string) error {
	if err := p.root.Mkdir(to, 0o700); err != nil {
		return err
	}
	first, number := map[uint64]int{}, map[string]int{} // a tar has a file with the first of its names
	for n, e := range t.list {
		if _, ok := first[e.ino]; !ok && e.nlink > 1 {
			first[e.ino] = n
		}
		if wanted[e.path] {
			number[e.path] = n
			if e.nlink > 1 {
				number[t.list[first[e.ino]].path] = first[e.ino]
			}
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in, out := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := p.set.writeFiles(ctx, src, t, out, nil)
		_ = out.CloseWithError(err)
		wrote <- err
	}()
	err := func() error {
		r := tar.NewReader(in)
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			at := path.Clean(h.Name)
			n, ok := number[at]
			switch {
			case ok && h.Typeflag == tar.TypeReg:
				err = writeAt(p.root, fmt.Sprintf("%s/%d", to, n), r)
			case ok && h.Typeflag == tar.TypeLink:
				from, is := number[path.Clean(h.Linkname)]
				if is && from != n {
					err = p.root.Link(fmt.Sprintf("%s/%d", to, from), fmt.Sprintf("%s/%d", to, n))
				}
			}
			if err != nil {
				return err
			}
		}
	}()
	_ = in.CloseWithError(io.ErrClosedPipe)
	if werr := <-wrote; werr != nil && (err == nil || !errors.Is(werr, io.ErrClosedPipe)) {
		return werr
	}
	return err
}

func writeAt(root *os.Root, name string, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// lay puts text files where git compares them.
func (p *patch) lay() error {
	numbers := map[*tree]map[string]int{}
	for _, t := range []*tree{&p.oldTree, &p.nowTree} {
		numbers[t] = map[string]int{}
		for n, e := range t.list {
			numbers[t][e.path] = n
		}
	}
	content := func(t *tree, dir, at string) (io.ReadCloser, error) {
		if e := t.at[at]; e != nil {
			return p.root.Open(fmt.Sprintf("%s/%d", dir, numbers[t][at]))
		}
		return p.open(at)
	}
	all := map[string]bool{}
	for at := range p.before {
		all[at] = true
	}
	for at := range p.after {
		all[at] = true
	}
	for _, side := range []string{sideBefore, sideAfter} {
		if err := p.root.Mkdir(side, 0o700); err != nil {
			return err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(all)) {
		kind := Changed
		var sides [2]io.ReadCloser
		var err error
		if p.before[at] {
			sides[0], err = content(&p.oldTree, fromOld, at)
		} else {
			kind = Added
		}
		if err == nil && p.after[at] {
			sides[1], err = content(&p.nowTree, fromNow, at)
		} else if err == nil {
			kind = Deleted
		}
		if err == nil {
			err = p.layOne(kind, at, sides)
		} else if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			p.cannot(kind, at, "file that cannot be read")
			err = nil
		}
		for _, f := range sides {
			if f != nil {
				_ = f.Close()
			}
		}
		if err != nil {
			return err
		}
	}
	slices.Sort(p.not)
	return nil
}

// textHead is how much of a file git looks at to tell text from other content.
const textHead = 8000

func (p *patch) layOne(k ChangeKind, at string, sides [2]io.ReadCloser) error {
	var heads [2][]byte
	for n, f := range sides {
		if f == nil {
			continue
		}
		b := make([]byte, textHead)
		got, err := io.ReadFull(f, b)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		heads[n] = b[:got]
		if bytes.IndexByte(heads[n], 0) >= 0 {
			p.cannot(k, at, "binary file")
			return nil
		}
	}
	for n, side := range []string{sideBefore, sideAfter} {
		if sides[n] == nil {
			continue
		}
		if err := p.root.MkdirAll(path.Join(side, path.Dir(at)), 0o700); err != nil {
			return err
		}
		name := path.Join(side, at)
		if err := writeAt(p.root, name, io.MultiReader(bytes.NewReader(heads[n]), sides[n])); err != nil {
			return err
		}
		mode := p.oldMode(at)
		if e := p.nowTree.at[at]; n == 1 && e != nil {
			mode = e.mode
		}
		if mode&0o100 != 0 { // what git shows of a mode
			if err := p.root.Chmod(name, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// head says what a patch is and what is not in it. Names are quoted: none can
// begin a line of its own.
func (p *patch) head(w io.Writer, name string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Overlay %s over %s (%q), made by berth. In a directory with the files of\nthe latter: patch -p1 <FILE. Owners, other modes than x, and attributes are not in it.\n", name, p.over, p.now.mark.Image)
	for n, line := range p.not {
		if n == 0 {
			b.WriteString("Not in it are:\n")
		}
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *patch) diff(ctx context.Context, w io.Writer) error {
	defer p.root.Close()
	var said bytes.Buffer
	proc, err := p.set.On.Start(ctx, jobs.Cmd{
		Argv: []string{"git", "--no-pager", "diff", "--no-index", "--no-prefix", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--text", sideBefore, sideAfter},
		Dir:  p.dir, Stdout: w, Stderr: &said,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CEILING_DIRECTORIES=" + filepath.Dir(p.dir), "LC_ALL=C"},
	})
	if err != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "make a patch", Err: err, Hint: "is git on PATH?"}
	}
	exit, err := proc.Wait()
	if err != nil {
		return err
	}
	if exit.Signal != 0 || exit.Code > 1 { // 1: they differ
		return errors.Join(&run.Error{Argv: []string{"git", "diff"}, Exit: exit, Stderr: strings.TrimSpace(said.String())}, context.Cause(ctx))
	}
	return nil
}
