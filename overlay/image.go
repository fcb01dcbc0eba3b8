package overlay

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sys/run"
	"berth/internal/sys/siffile"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// readImage lists the paths of an overlay's image, which must be the one that
// the mark names.
func readImage(ctx context.Context, on jobs.Starter, m *Mark) (lower, error) {
	fi, err := os.Stat(m.Image)
	if err != nil {
		return nil, err
	}
	if fi.IsDir() {
		if id, err := DirID(m.Image); err != nil || id != m.ImageID {
			return nil, errors.Join(errors.New("it has changed"), err)
		}
		root, err := os.OpenRoot(m.Image)
		if err != nil {
			return nil, err
		}
		return newDirImage(root), nil
	}
	if id, err := ImageID(m.Image); err != nil || id != m.ImageID {
		return nil, errors.Join(errors.New("it has changed"), err)
	}
	at, err := squashfsOf(m.Image)
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath("unsquashfs")
	if err != nil {
		return nil, errNoLister
	}
	out, err := run.Output(ctx, on, jobs.Cmd{
		Argv: []string{program, "-o", strconv.FormatInt(at, 10), "-ll", "-d", "", m.Image},
		Env:  append(os.Environ(), "LC_ALL=C"),
	})
	if err != nil {
		return nil, err
	}
	return parseListing(string(out)), nil
}

var errNoLister = errors.New("unsquashfs of squashfs-tools is not here")

// listing are the paths of a packed image.
type listing struct {
	nodes map[string]*node
	in    map[string][]string // the names in each directory
	size  int64               // of all files
}

func newListing() *listing { return &listing{nodes: map[string]*node{}, in: map[string][]string{}} }

func (l *listing) add(p string, mode uint32) {
	l.nodes[p] = &node{mode: mode, uid: -1, gid: -1}
	l.in[parent(p)] = append(l.in[parent(p)], path.Base(p))
}

// parseListing reads what unsquashfs -ll prints: for each path its mode, owner,
// size (or numbers of a device), date, time, and itself with what -d names
// before it, here nothing; a symbolic link shows where it leads, too.
func parseListing(text string) *listing {
	l := newListing()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		mode, ok := parseMode(line)
		if !ok {
			continue
		}
		words, rest := make([]string, 0, 5), line
		for len(words) < 5 {
			rest = strings.TrimLeft(rest, " ")
			word, after, _ := strings.Cut(rest, " ")
			rest = after
			if !strings.HasSuffix(word, ",") { // the first number of a device
				words = append(words, word)
			}
			if word == "" {
				break
			}
		}
		p, ok := strings.CutPrefix(rest, "/")
		if !ok || p == "" {
			continue
		}
		if mode&unix.S_IFMT == unix.S_IFLNK {
			if n, err := strconv.Atoi(words[2]); err == nil && n >= 0 && len(p) > n+len(" -> ") {
				p = p[:len(p)-n-len(" -> ")]
			}
		}
		if mode&unix.S_IFMT == unix.S_IFREG {
			if n, err := strconv.ParseInt(words[2], 10, 64); err == nil {
				l.size += n
			}
		}
		l.add(p, mode)
	}
	return l
}

// parseMode reads "drwxr-xr-x".
func parseMode(s string) (mode uint32, ok bool) {
	types := map[byte]uint32{
		'-': unix.S_IFREG,
		'd': unix.S_IFDIR,
		'l': unix.S_IFLNK,
		'c': unix.S_IFCHR,
		'b': unix.S_IFBLK,
		'p': unix.S_IFIFO,
		's': unix.S_IFSOCK,
	}
	if len(s) < 11 || s[10] != ' ' {
		return 0, false
	}
	if mode, ok = types[s[0]]; !ok {
		return 0, false
	}
	for n, c := range []byte(s[1:10]) {
		bit := uint32(1) << (8 - n)
		special := uint32(0o4000) >> (n / 3)
		switch {
		case c == "rwx"[n%3]:
			mode |= bit
		case c == '-':
		case c == 's' || c == 't':
			mode |= bit | special
		case c == 'S' || c == 'T':
			mode |= special
		default:
			return 0, false
		}
	}
	return mode, true
}

func (l *listing) has(p string) (has, known bool) { return l.nodes[p] != nil, true }

func (l *listing) children(p string) []string { return l.in[p] }

func (l *listing) bytes() int64 { return l.size }

func (l *listing) stat(p string) *node { return l.nodes[p] }

// dirImage is an unpacked image. Each directory is read once, and none through
// a link.
type dirImage struct {
	root *os.Root
	ids  func(uid, gid int) (int, int)
	dirs map[string]map[string]*node
	err  map[string]bool // could not be read
}

func newDirImage(root *os.Root) *dirImage {
	return &dirImage{root, run.InsideIDs(), map[string]map[string]*node{}, map[string]bool{}}
}

func (d *dirImage) in(dir string) map[string]*node {
	if got, ok := d.dirs[dir]; ok {
		return got
	}
	names := map[string]*node{}
	d.dirs[dir] = names
	at := "."
	if dir != "" {
		if n := d.stat(dir); n == nil || n.mode&unix.S_IFMT != unix.S_IFDIR {
			d.err[dir] = d.err[parent(dir)]
			return names
		}
		at = dir
	}
	f, err := d.root.OpenFile(at, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		d.err[dir] = true
		return names
	}
	defer f.Close()
	list, err := f.Readdirnames(-1)
	d.err[dir] = err != nil
	for _, name := range list {
		var st unix.Stat_t
		if unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			n := &node{mode: uint32(st.Mode)} //nolint:unconvert // another type elsewhere
			n.uid, n.gid = d.ids(int(st.Uid), int(st.Gid))
			names[name] = n
		}
	}
	return names
}

func (d *dirImage) stat(p string) *node { return d.in(parent(p))[path.Base(p)] }

func (d *dirImage) has(p string) (has, known bool) {
	has = d.stat(p) != nil
	return has, has || !d.err[parent(p)]
}

func (d *dirImage) bytes() (n int64) {
	got, err := Measure(context.Background(), d.root.Name(), Space{})
	if err != nil {
		return 0
	}
	return int64(got.Bytes)
}

func (d *dirImage) children(p string) []string { return slices.Collect(maps.Keys(d.in(p))) }

// squashfsOf is where in a SIF its root file system begins.
func squashfsOf(sif string) (int64, error) {
	f, err := os.Open(sif)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	root, err := siffile.Squashfs(f, fi.Size())
	return root.Offset, err
}
