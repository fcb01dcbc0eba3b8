//go:build linux

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
)

// user says that a process uses an image on this node. Its file is made once and
// removed by the process itself, or by a later one that finds it gone.
type user struct {
	lease.Process
	For  string `json:"for"`            // the directory of the attempt or the environment
	Copy string `json:"copy,omitempty"` // name of the copy; "" is the image where it is
}

// unfinishedFor is how old a user's file that cannot be read is when no process
// is still about to write it.
const unfinishedFor = time.Hour

// enter makes a user's file.
func (e *entry) enter(u user) (path string, err error) {
	b, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	path = filepath.Join(e.dir, dirUsers, fmt.Sprintf("%d-%s-%08x.json", u.PID, u.Start, rand.Uint32()))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path)
		return "", err
	}
	return path, nil
}

// users returns who uses copies of the image, or the image itself, by the name
// of the copy, and removes the files of those that are provably gone. unknown
// tells that there may be more.
func (e *entry) users(self lease.Process) (byCopy map[string]int, unknown bool) {
	byCopy = map[string]int{}
	dir := filepath.Join(e.dir, dirUsers)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return byCopy, !errors.Is(err, fs.ErrNotExist)
	}
	for _, d := range entries {
		path := filepath.Join(dir, d.Name())
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var u user
		if err != nil || json.Unmarshal(b, &u) != nil {
			if fi, err := d.Info(); err == nil && time.Since(fi.ModTime()) > unfinishedFor {
				_ = os.Remove(path)
				continue
			}
			unknown = true
			continue
		}
		if u.Gone(self) {
			_ = os.Remove(path)
			continue
		}
		byCopy[u.Copy]++
	}
	return byCopy, unknown
}

// join begins to use a copy that is there. It returns nil when there is none, or
// when another process may be about to remove it; held says that this process
// itself holds the lease.
func (e *entry) join(form Form, owner string, self lease.Process, held bool) (*Copy, error) {
	for _, dir := range e.copies() {
		if !usable(dir, form, self) {
			continue
		}
		path, err := e.enter(user{Process: self, For: owner, Copy: filepath.Base(dir)})
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // removed as unused
		}
		if err != nil {
			return nil, err
		}
		c := &Copy{Path: content(dir, form), Form: form, Reused: true, user: path}
		// In this order: who removes takes the lease before it reads the users.
		if !held {
			if h, err := lease.Holder(e.dir); err != nil || h != nil {
				_ = c.Close()
				return nil, nil
			}
		}
		if _, err := os.Lstat(path); err == nil && usable(dir, form, self) {
			return c, nil
		}
		_ = c.Close()
	}
	return nil, nil
}

// Has tells whether a copy of that form is there.
func (n *Node) Has(img Image, form Form) bool {
	e, err := n.entry(img)
	if err != nil {
		return false
	}
	self := lease.Self()
	for _, dir := range e.copies() {
		if usable(dir, form, self) {
			return true
		}
	}
	return false
}

// InPlace notes that an image is used where it is, and returns how many others
// on this node do so.
func (n *Node) InPlace(img Image, owner string) (others int, c *Copy, err error) {
	e, err := n.entry(img)
	if err != nil {
		return 0, nil, err
	}
	self := lease.Self()
	for range 5 {
		if err := e.ready(); err != nil {
			return 0, nil, err
		}
		path, err := e.enter(user{Process: self, For: owner})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		users, _ := e.users(self)
		return users[""] - 1, &Copy{Path: img.Path, user: path}, nil
	}
	return 0, nil, &jobs.Error{Kind: jobs.KindAgain, Msg: e.dir + " is removed again and again"}
}
