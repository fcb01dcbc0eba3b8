package overlay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"berth/internal/run"
	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
)

// sbin is where e2fsprogs live; it is not on an ordinary user's PATH.
var sbin = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// tool finds a program of e2fsprogs.
func tool(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, d := range sbin {
		p := filepath.Join(d, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: name + " is not here, and an ext3 overlay needs it", Hint: "install e2fsprogs, or use a directory: overlay = \"fuse\" in the profile and no [resources] disk"}
}

// makeExt3 makes a sparse ext3 image of the given size, with the two
// directories that the container program expects. No blocks are reserved for
// root: there is no root inside. A crash leaves only names that discard knows.
func makeExt3(ctx context.Context, on jobs.Starter, path string, size jobs.Bytes) (err error) {
	mke2fs, err := tool("mke2fs")
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp(filepath.Dir(path), prefixMkfs+"*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	err = f.Truncate(int64(size))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	_, err = run.Output(ctx, on, jobs.Cmd{Argv: []string{mke2fs, "-q", "-F", "-t", "ext3", "-m", "0",
		"-E", "root_owner=" + strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid()) + ",lazy_itable_init=1", "-d", root, tmp}})
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("make an ext3 overlay of %s", size), Err: err, Hint: "is there space left? df -h " + filepath.Dir(path)}
	}
	return os.Rename(tmp, path)
}

// prefixMkfs begins the name of the directory that a new image is made from.
const prefixMkfs = ".mkfs-"

// Offsets in the superblock of an ext2/3/4 image, which starts at 1024 (the
// kernel's ext4 documentation, "Super Block"), and their flags. A kernel mount
// leaves the state as it is and sets the flag for recovery instead.
const (
	superblockAt   = 1024
	superblockSize = 0x64
	offsetMagic    = 0x38
	offsetState    = 0x3A
	offsetIncompat = 0x60
	magicExt       = 0xEF53
	stateClean     = 0x0001
	stateErrors    = 0x0002
	needsRecovery  = 0x0004
)

// checkExt3 mends an image that was not unmounted cleanly. The flag in the
// superblock decides, and not e2fsck -n, which exits 0 for a dirty image; the
// container program would mount a dirty one writable without a word.
func checkExt3(ctx context.Context, on jobs.Starter, path string) (mended bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	var b [superblockSize]byte
	_, err = f.ReadAt(b[:], superblockAt)
	_ = f.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if binary.LittleEndian.Uint16(b[offsetMagic:]) != magicExt {
		return false, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay image " + path + " is not an ext3 image", Hint: "restore it from a copy, or use another overlay name"}
	}
	state := binary.LittleEndian.Uint16(b[offsetState:])
	if state&stateClean != 0 && state&stateErrors == 0 && binary.LittleEndian.Uint32(b[offsetIncompat:])&needsRecovery == 0 {
		return false, nil
	}
	e2fsck, err := tool("e2fsck")
	if err != nil {
		return false, err
	}
	p, err := on.Start(ctx, jobs.Cmd{Argv: []string{e2fsck, "-fy", path}})
	if err != nil {
		return false, err
	}
	exit, err := p.Wait()
	if err != nil {
		return false, err
	}
	if err := context.Cause(ctx); err != nil {
		return false, fmt.Errorf("check overlay image %s: %w", path, err) // killed by us
	}
	// e2fsck(8): 0 no errors, 1 errors corrected.
	if !exit.Started || exit.Signal != 0 || exit.Code > 1 {
		return false, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("overlay image %s is damaged and e2fsck could not mend it (%s)", path, exit),
			Hint: "look at it with " + shellescape.QuoteCommand([]string{e2fsck, "-fn", path}) + "; restore it from a copy, or use another overlay name"}
	}
	return true, nil
}
