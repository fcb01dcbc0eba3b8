//go:build linux

package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/node/container"
	"berth/internal/sys/lease"
)

// Names in the directory of an image, which is named by [Image.key]: leases, the
// users, and copies. A copy is a directory with the other three.
const (
	dirUsers     = "users"
	prefixCopy   = "copy-"
	dirCopy      = "copy"          // while it is made
	fileComplete = "complete.json" // written last
	fileCanary   = "canary"        // what removes old files takes this one first
	fileSIF      = "image.sif"
	dirRoot      = "root"
)

// complete is complete.json.
type complete struct {
	Version int       `json:"version"`
	Form    Form      `json:"form"`
	Image   string    `json:"image"`         // that it was made from
	Sum     string    `json:"sum,omitempty"` // SHA-256 of that file, where it was read whole
	Size    int64     `json:"size_bytes"`    // of the SIF
	Host    string    `json:"host"`
	BootID  string    `json:"boot_id"` // of the machine; without the process's namespace
	Stamp   string    `json:"stamp"`   // of the copy, which changes when it is touched
	Created time.Time `json:"created"`
}

// content is where a copy's file or directory is.
func content(dir string, form Form) string {
	if form == Unpacked {
		return filepath.Join(dir, dirRoot)
	}
	return filepath.Join(dir, fileSIF)
}

// boot is the part of a boot id that names the boot of the machine.
func boot(id string) string {
	first, _, _ := strings.Cut(id, "/")
	return first
}

// usable tells whether the copy in dir is one of that form, whole, of this boot
// (it was never synced) and as its maker has left it.
func usable(dir string, form Form, self lease.Process) bool {
	b, err := os.ReadFile(filepath.Join(dir, fileComplete))
	var c complete
	if err != nil || json.Unmarshal(b, &c) != nil || c.Version != 1 || c.Form != form || c.BootID == "" || c.BootID != boot(self.BootID) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(dir, fileCanary)); err != nil {
		return false
	}
	path := content(dir, form)
	fi, err := os.Lstat(path)
	if err != nil || fi.IsDir() != (form == Unpacked) || !fi.IsDir() && !fi.Mode().IsRegular() {
		return false
	}
	return c.Stamp != "" && images.Stamp(path) == c.Stamp
}

// copies are the directories of an image's copies.
func (e *entry) copies() []string {
	list, _ := filepath.Glob(filepath.Join(e.dir, prefixCopy+"*"))
	return list
}

// make makes a copy below temp, after there is room for it.
func (e *entry) make(ctx context.Context, temp *container.Scratch, form Form) error {
	before := images.Stamp(e.img.Path)
	need, err := needs(e.img.Path, form)
	if err != nil {
		return err
	}
	if err := e.n.makeRoom(need, e); err != nil {
		return err
	}
	dir := filepath.Join(temp.Workdir(), dirCopy)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	c := complete{
		Version: 1, Form: form, Image: e.img.Path, Sum: e.img.Sum, Size: need.sif,
		Host: images.Hostname(), BootID: boot(lease.BootID()), Created: time.Now().UTC(),
	}
	path := content(dir, form)
	if form == Unpacked {
		if e.img.Sum != "" {
			if err := e.n.Verify(ctx, e.img.Path, e.img.Sum); err != nil {
				return err
			}
		}
		e.n.Progress("unpacking " + e.img.Path + " (once on this machine)")
		stop := e.n.gauge("unpacking " + e.img.Path).watch(path)
		err = e.n.Unpack(ctx, e.img.Path, path, temp.Conf())
		stop()
	} else {
		e.n.Progress("copying " + e.img.Path + " to this node (once)")
		g := e.n.gauge("copying " + e.img.Path + " to this node")
		c.Sum, err = copyFile(ctx, e.img.Path, path, e.img.Sum, func(done int64) { g.tell(done, need.sif) })
		g.end()
	}
	if err != nil {
		return err
	}
	if images.Stamp(e.img.Path) != before {
		return errors.New("the image was replaced while it was staged")
	}
	// Sites remove files by the time of their last use or change; this one is
	// never used and very old.
	canary := filepath.Join(dir, fileCanary)
	if err := os.WriteFile(canary, nil, 0o600); err != nil {
		return err
	}
	old := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(canary, old, old); err != nil {
		return err
	}
	c.Stamp = images.Stamp(path)
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileComplete), b, 0o600)
}

// copyFile copies a file, tells how many bytes are done, and returns its SHA-256,
// which must be sum, if that is not "".
func copyFile(ctx context.Context, from, to, sum string, tell func(done int64)) (string, error) {
	src, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var done int64
	for err == nil {
		if err = ctx.Err(); err != nil {
			break
		}
		var n int
		var rerr error
		n, rerr = src.Read(buf)
		_, _ = h.Write(buf[:n])
		if _, err = dst.Write(buf[:n]); err != nil {
			break
		}
		done += int64(n)
		tell(done)
		err = rerr
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	got := hex.EncodeToString(h.Sum(nil))
	if sum != "" && got != sum {
		return "", fmt.Errorf("the SHA-256 of %s is %s, and %s is recorded", from, got, sum)
	}
	_, err = images.Whole(to)
	return got, err
}
