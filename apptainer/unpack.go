package apptainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/disk"
	"berth/internal/run"
	"berth/jobs"
	"berth/overlay"
)

// An unpacked image is a directory, named by the image's id, with
const (
	fileComplete = "complete.json" // written last
	fileCanary   = "canary"        // what removes old files takes this one first
	dirRoot      = "root"          // the image
)

// unpackMemory is what unsquashfs may take for its queues, and some more: with
// 256 MiB it was killed.
const unpackMemory = 512 * jobs.MiB

// prefixOld begins the name of what was replaced.
const prefixOld = ".old-"

// unpacked is complete.json.
type unpacked struct {
	Version int       `json:"version"`
	ImageID string    `json:"image_id"`
	Image   string    `json:"image"`
	Host    string    `json:"host"`
	Created time.Time `json:"created"`
}

// unpackBase is where images are unpacked: below the state directory if that is
// on a disk of this machine, else on its scratch. It is the user's own: in a
// user namespace nobody else's files can be the root directory.
func (o *opener) unpackBase() (string, error) {
	dir := filepath.Join(o.spec.Home, "images", "unpacked")
	if !overlay.TakesDirectories(dir) {
		base, err := scratchBase(o.spec.Scratch)
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, fmt.Sprintf("berth-%d-images", os.Getuid()))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory for unpacked images", Err: err}
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || !fi.IsDir() || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o077 != 0 {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: dir + " is not a directory of your own, mode 0700", Hint: "ls -ld " + dir}
	}
	return dir, nil
}

// unpack returns the directory that a SIF is unpacked in, and unpacks it the
// first time on this machine. It is never changed afterwards, and many
// environments may have it as their lower layer. Of several that unpack at the
// same time one has its directory in place; what a killed one has left is
// removed by the next.
func (o *opener) unpack(ctx context.Context, img image) (string, error) {
	base, err := o.unpackBase()
	if err != nil {
		return "", err
	}
	key := strings.ReplaceAll(img.id, ":", "-")
	dir := filepath.Join(base, key)
	if isUnpacked(dir) {
		return filepath.Join(dir, dirRoot), nil
	}
	if got, ok := jobMemory(); ok && got != 0 && got < unpackMemory {
		// The kernel would end unsquashfs, and have the job be called out of
		// memory for ever.
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("unpacking an image takes %s of memory, and this job has %s", unpackMemory, got),
			Hint: "ask for more memory, or open an environment of this image once outside of the job"}
	}
	done := takeTurn(ctx, filepath.Join(base, key+".lock"), func() { o.at.Progress("another process unpacks " + img.path + ": waiting for it") })
	defer done()
	if isUnpacked(dir) {
		return filepath.Join(dir, dirRoot), nil
	}
	o.at.Progress("unpacking " + img.path + " (once on this machine)")
	// Whoever made these had the turn, on this machine, and is gone.
	if entries, err := os.ReadDir(base); err == nil {
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefixNew+key+"-") || strings.HasPrefix(e.Name(), prefixOld+key+"-") {
				_ = removeTree(filepath.Join(base, e.Name()))
			}
		}
	}
	sweepOld(base, prefixProbe)
	temp, err := os.MkdirTemp(base, prefixNew+key+"-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = removeTree(temp) }()
	if err := o.unpackInto(ctx, img, temp); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "unpack " + img.path, Err: err, Hint: "is there space left? df -h " + base}
	}
	if _, err := os.Lstat(dir); err == nil {
		// Half removed by whatever removes old files here. Running containers
		// keep what they have open.
		if err := os.Rename(dir, filepath.Join(base, fmt.Sprintf("%s%s-%d", prefixOld, key, time.Now().UnixNano()))); err != nil && !isUnpacked(dir) {
			return "", err
		}
	}
	if err := os.Rename(temp, dir); err != nil && !isUnpacked(dir) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "put the unpacked image in place", Err: err}
	}
	return filepath.Join(dir, dirRoot), nil
}

func (o *opener) unpackInto(ctx context.Context, img image, dir string) error {
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
	env, drop, err := o.buildEnviron(false)
	if err != nil {
		return err
	}
	defer drop()
	root := filepath.Join(dir, dirRoot)
	_, err = run.Output(ctx, o.at.On, jobs.Cmd{Argv: []string{o.program, "build", "--sandbox", root, img.path}, Dir: "/", Env: env})
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		return errors.New(lastLine(failed.Stderr))
	}
	if err != nil {
		return err
	}
	// The image may have been replaced meanwhile.
	if id, err := overlay.ImageID(img.path); err != nil || id != img.id {
		return errors.New("the image was replaced while it was unpacked")
	}
	b, err := json.MarshalIndent(unpacked{Version: 1, ImageID: img.id, Image: img.path, Host: hostname(), Created: time.Now().UTC()}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileComplete), b, 0o600)
}

// isUnpacked tells whether an unpacked image stands in dir, complete and with
// nothing removed from it.
func isUnpacked(dir string) bool {
	for _, name := range []string{fileComplete, fileCanary, dirRoot} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// removeTree removes what a container or a build has left.
func removeTree(dir string) error {
	err := disk.RemoveTree(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
