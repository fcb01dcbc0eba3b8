//go:build linux

package staging

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/internal/sys/private"
	"berth/jobs"
)

// unusedFor is how long an unused copy stands.
const unusedFor = 7 * 24 * time.Hour

// sweep removes what is not needed any more, before a copy for e is made: what
// killed makers have left, and what was not used for long.
func (n *Node) sweep(e *entry, self lease.Process) {
	container.SweepScratch(context.Background(), n.Dir, self)
	for _, other := range n.others(e, self) {
		if time.Since(other.used) > unusedFor {
			_ = n.remove(other.entry, self)
		}
	}
	n.removeCopies(e, self, func(dir string) bool { return !usable(dir, SIF, self) && !usable(dir, Unpacked, self) })
}

// makeRoom removes unused copies, those unused for longest first, until there is
// room. The caller holds the lease of e.
func (n *Node) makeRoom(want need, e *entry) error {
	self := lease.Self()
	others := n.others(e, self)
	for {
		r, err := n.room(n.Dir)
		if err != nil {
			return err
		}
		lacks := r.lacks(want)
		if lacks == "" {
			return nil
		}
		for len(others) > 0 && n.remove(others[0].entry, self) != nil {
			others = others[1:]
		}
		if len(others) == 0 {
			err := errors.New("there is not enough room in " + n.Dir + ": " + lacks)
			if r.Bytes, r.Inodes = r.Total, math.MaxInt64; r.lacks(want) == "" { // others have taken it
				err = &jobs.Error{Kind: jobs.KindInfra, Msg: err.Error()}
			}
			return err
		}
		others = others[1:]
	}
}

// unused is an image that is not in use at the moment.
type unused struct {
	*entry
	used time.Time // when a use last began or ended
}

// others are the unused images but for e, those unused for longest first.
func (n *Node) others(e *entry, self lease.Process) []unused {
	entries, err := os.ReadDir(n.Dir)
	if err != nil {
		return nil
	}
	var out []unused
	for _, d := range entries {
		if !d.IsDir() || d.Name() == e.key || strings.HasPrefix(d.Name(), private.DirOf("")) {
			continue
		}
		other := &entry{n: n, key: d.Name(), dir: filepath.Join(n.Dir, d.Name())}
		fi, err := os.Lstat(filepath.Join(other.dir, dirUsers))
		if err != nil || !fi.IsDir() {
			continue // not made by this package, or not yet
		}
		if users, unknown := other.users(self); len(users) == 0 && !unknown {
			out = append(out, unused{other, fi.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b unused) int { return a.used.Compare(b.used) })
	return out
}

var errInUse = errors.New("it is in use")

// remove removes all copies of an image, with its directory. It takes the lease
// first; who begins to use a copy looks at that after it has said so.
func (n *Node) remove(e *entry, self lease.Process) error {
	trash, err := n.scratch("old", self, e.dir)
	if err != nil {
		return err
	}
	defer func() { _ = trash.Remove() }()
	me := self.Owner(trash.Dir)
	l, err := lease.Acquire(e.dir, me, func(o lease.Owner) bool { return o.Process().Gone(self) })
	if err != nil {
		return err
	}
	if users, unknown := e.users(self); len(users) > 0 || unknown || inUse(e.dir) {
		return errors.Join(errInUse, l.Release())
	}
	if err := os.Rename(e.dir, filepath.Join(trash.Workdir(), dirCopy)); err != nil {
		return errors.Join(err, l.Release())
	}
	return nil
}

// removeCopies removes those unused copies of an image for which drop is true. The caller holds the lease of e.
func (n *Node) removeCopies(e *entry, self lease.Process, drop func(dir string) bool) {
	users, unknown := e.users(self)
	for _, dir := range e.copies() {
		if unknown || users[filepath.Base(dir)] > 0 || !drop(dir) || inUse(dir) {
			continue
		}
		trash, err := n.scratch("old", self, dir)
		if err != nil {
			return
		}
		_ = os.Rename(dir, filepath.Join(trash.Workdir(), dirCopy))
		_ = trash.Remove()
	}
}

// inUse looks for processes of this user that have something below dir mounted
// or open: a container outlives a runner that was killed, for some seconds.
// What cannot be looked at does not count.
func inUse(dir string) bool {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	below := dir + "/"
	for _, p := range procs {
		for _, name := range []string{"cmdline", "mountinfo"} {
			if b, err := os.ReadFile(filepath.Join(p, name)); err == nil && strings.Contains(string(b), below) {
				return true
			}
		}
		fds, err := os.ReadDir(filepath.Join(p, "fd"))
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(p, "fd", fd.Name())); err == nil && strings.HasPrefix(to, below) {
				return true
			}
		}
	}
	return false
}
