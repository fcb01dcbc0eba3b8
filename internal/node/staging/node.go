//go:build linux

package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/node/batch"
	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/internal/sys/private"
	"berth/jobs"
	"berth/overlay"
)

// Image is the SIF that a copy is wanted of.
type Image struct {
	Path string // absolute
	// Sum is the SHA-256 that the file must have, or "" where none is recorded.
	// Copies of files with the same one are shared, wherever those stand.
	Sum string
}

// Node is a user's copies on this machine.
type Node struct {
	Dir      string       // [Dir]
	Progress func(string) // tells a person what takes long; never nil
	// Meter tells how many bytes are done of what takes more than a second, often; what is
	// "" when that is over. It may be nil.
	Meter func(what string, done, of int64)
	// Unpack unpacks a SIF into a directory that does not exist yet. dir is one
	// for its temporary files.
	Unpack func(ctx context.Context, sif, root, dir string) error
	// Verify looks whether the file at path has this SHA-256, and may remember
	// that. It is asked before a file is unpacked.
	Verify   func(ctx context.Context, path, sum string) error
	Patience lease.Patience // 0 is the usual
	// Free overrides what the file system says; for tests.
	Free func(dir string) (Room, error)
}

// usual is how a maker that may be gone is waited for. One whose process is no
// more is gone at once.
var usual = lease.Patience{Look: 100 * time.Millisecond, Silent: 180 * time.Second}

// beatEvery is how often a maker shows that it works on.
const beatEvery = 5 * time.Second

// Place is where a user's copies are on a node.
type Place struct {
	Dir     string // "" when there is none
	Lasting bool   // later jobs find it
	Memory  bool   // what is there takes memory, and no disk
	Why     string // there is none
}

// Find finds or makes the directory for a user's copies: below the state
// directory home on a machine that hands out no jobs, if that is on a disk of
// this machine, else on the scratch of the node. It is 0700 and the user's own:
// in a user namespace no other user's files can be the root directory, and no
// other user can put something there.
func Find(home, scratch string, getenv func(string) string) Place {
	_, in := batch.Here(getenv)
	job := in.ID
	if dir := filepath.Join(home, "images"); job == "" && scratch == "" && overlay.TakesDirectories(dir) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return Place{Why: err.Error()}
		}
		return found(dir, "staged", true)
	}
	base, lasting, err := container.LastingBase(scratch, getenv, job)
	if err != nil {
		return Place{Why: err.Error()}
	}
	if !overlay.TakesDirectories(base) {
		return Place{Why: base + " is not on a disk of this node"}
	}
	at := found(base, private.DirOf(private.Images), lasting)
	at.Memory = container.InMemory(base)
	return at
}

func found(base, name string, lasting bool) Place {
	dir, err := private.OwnDir(base, name)
	if err != nil {
		return Place{Why: err.Error()}
	}
	return Place{Dir: dir, Lasting: lasting}
}

// key names all copies of an image. The id in a SIF alone will not do: its maker
// has written it there, and an image from anywhere could be staged in the place
// of one that is trusted.
func (i Image) key() (string, error) {
	if i.Sum != "" {
		return "sha256-" + i.Sum, nil
	}
	id, err := overlay.ImageID(i.Path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(i.Path)
	if err != nil {
		return "", err
	}
	stamp := images.Stamp(real)
	if stamp == "" {
		return "", errors.New("the system tells nothing of the file " + real)
	}
	sum := sha256.Sum256([]byte(real + "\x00" + stamp))
	return strings.ReplaceAll(id, ":", "-") + "-" + hex.EncodeToString(sum[:8]), nil
}

// entry is the directory of one image's copies.
type entry struct {
	n   *Node
	img Image
	key string
	dir string
}

func (n *Node) entry(img Image) (*entry, error) {
	key, err := img.key()
	if err != nil {
		return nil, err
	}
	return &entry{n: n, img: img, key: key, dir: filepath.Join(n.Dir, key)}, nil
}

// ready makes the directory where it is missing.
func (e *entry) ready() error {
	if err := os.Mkdir(e.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Mkdir(filepath.Join(e.dir, dirUsers), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(e.dir)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is no directory", e.dir)
	}
	return err
}

// Copy is a copy in use.
type Copy struct {
	Path   string // of the SIF, or of the unpacked directory
	Form   Form
	Reused bool // it was there already
	user   string
}

// Close ends the use.
func (c *Copy) Close() error {
	if c == nil || c.user == "" {
		return nil
	}
	if err := os.Remove(c.user); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.user = ""
	return nil
}

// Stage returns a copy of an image, which stands until it is closed: the one
// that is there, or a new one. owner is the directory of the attempt or the
// environment that uses it. Of several processes that want a copy one makes it
// and the others wait.
func (n *Node) Stage(ctx context.Context, img Image, form Form, owner string) (*Copy, error) {
	e, err := n.entry(img)
	if err != nil {
		return nil, err
	}
	self := lease.Self()
	me := self.Owner(e.dir)
	said := false
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := e.ready(); err != nil {
			return nil, err
		}
		c, err := e.join(form, owner, self, false)
		if c != nil || err != nil {
			return c, err
		}
		// Temporary files of the maker, and its beat.
		temp, err := n.scratch("new", self, e.dir)
		if err != nil {
			return nil, err
		}
		me.Dir = temp.Dir
		l, err := lease.Acquire(e.dir, me, func(o lease.Owner) bool {
			if !said && !o.Process().Gone(self) {
				said = true
				n.Progress(fmt.Sprintf("process %d stages %s on this node: waiting for it", o.PID, img.Path))
			}
			return n.gone(ctx, e.dir, o, self)
		})
		if err == nil {
			c, err = e.held(ctx, l, temp, form, owner, self)
			err = errors.Join(err, l.Release())
		}
		if rerr := temp.Remove(); err == nil && rerr != nil {
			n.Progress("a temporary directory was not removed: " + rerr.Error())
		}
		var held *lease.HeldError
		switch {
		case c != nil && err == nil:
			return c, nil
		case c != nil:
			_ = c.Close()
			return nil, err
		case errors.As(err, &held), jobs.KindOf(err) == jobs.KindAgain, errors.Is(err, fs.ErrNotExist) && !e.stands():
			// Another process is quicker, or has removed the directory of an unused image.
		case err != nil:
			return nil, err
		}
	}
}

// scratch makes a directory whose owner is known, so that it is removed by
// whoever comes next if this process is killed.
func (n *Node) scratch(what string, self lease.Process, forDir string) (*container.Scratch, error) {
	return container.NewScratch(n.Dir, fmt.Sprintf("%s-%d-%08x", what, self.PID, rand.Uint32()), self, forDir)
}

func (e *entry) stands() bool {
	_, err := os.Lstat(e.dir)
	return err == nil
}

// gone waits for the end of who makes or removes something in dir, or until it
// is provably gone.
func (n *Node) gone(ctx context.Context, dir string, o lease.Owner, self lease.Process) bool {
	p := n.Patience
	if p.Look == 0 {
		p = usual
	}
	return lease.Gone(ctx, o, self, p, func(string) bool {
		if o.Process().Gone(self) {
			return true
		}
		h, err := lease.Holder(dir)
		return err == nil && (h == nil || h.Dir != o.Dir)
	})
}

// held makes the copy as the one that may.
func (e *entry) held(ctx context.Context, l *lease.Lease, temp *container.Scratch, form Form, owner string, self lease.Process) (*Copy, error) {
	if c, err := e.join(form, owner, self, true); c != nil || err != nil {
		return c, err // another process was quicker
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	beat := filepath.Join(temp.Dir, "beat")
	if err := os.WriteFile(beat, []byte("0"), 0o600); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	defer func() { cancel(nil); <-done }()
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(beatEvery):
			}
			if !l.Stands() {
				cancel(&jobs.Error{Kind: jobs.KindAgain, Msg: "another process has taken over the staging of " + e.img.Path})
				return
			}
			_ = os.WriteFile(beat, fmt.Append(nil, i), 0o600)
		}
	}()
	e.n.sweep(e, self)
	if err := e.make(ctx, temp, form); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if !l.Stands() {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "another process has taken over the staging of " + e.img.Path}
	}
	made := filepath.Join(temp.Workdir(), dirCopy)
	if err := os.Rename(made, filepath.Join(e.dir, fmt.Sprintf("%s%08x", prefixCopy, rand.Uint32()))); err != nil {
		return nil, err
	}
	c, err := e.join(form, owner, self, true)
	if c == nil && err == nil {
		err = errors.New("the copy was damaged as soon as it was made")
	}
	if c != nil {
		c.Reused = false
	}
	return c, err
}
