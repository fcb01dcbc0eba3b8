package overlay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
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
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: name + " is not here, and an ext3 overlay needs it",
		Hint: "install e2fsprogs, or use a directory: overlay = \"fuse\" in the profile and no [resources] disk"}
}

// smallestExt3 is what an image has at least: mke2fs gives one of less than 2 MiB
// no journal, and the container program takes only ext3, which has one. largestExt3 is what
// block numbers of 32 bits reach.
const (
	smallestExt3 = 4 * jobs.MiB
	largestExt3  = 16*jobs.TiB - 4*jobs.KiB
)

// CheckSize refuses a size and a number of files that no ext3 image can have; 0
// is not said, and directories are measured, whatever their size.
func CheckSize(driver string, size jobs.Bytes, inodes int64) error {
	if driver != jobs.DriverExt3 {
		return nil
	}
	size = cmp.Or(size, DefaultSize)
	block := jobs.KiB // as mke2fs chooses it; a file takes an inode, and an image a block for each at most
	if size >= 512*jobs.MiB {
		block = 4 * jobs.KiB
	}
	switch most := int64(size / block); {
	case size < smallestExt3:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("an ext3 overlay of %s is too small", size),
			Hint: "the smallest has " + smallestExt3.String()}
	case size > largestExt3:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("an ext3 overlay of %s is too large", size), Hint: "it has less than 16TiB"}
	case inodes > most:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("an ext3 overlay of %s cannot hold %d files", size, inodes),
			Hint: fmt.Sprintf("it holds %d at most; give it a larger size", most)}
	}
	return nil
}

// makeExt3 makes a sparse ext3 image of the given size at path, with the two
// directories that the container program expects: from a template where
// spec.Templates names a directory for them. A crash leaves only names that
// discard knows.
func makeExt3(ctx context.Context, on jobs.Starter, path string, spec jobs.OverlaySpec) error {
	size := cmp.Or(spec.Size, DefaultSize)
	err := errNoTemplates
	if spec.Templates != "" {
		err = fromTemplate(ctx, on, path, spec.Templates, size, spec.Inodes)
	}
	// A missing template (the state directory is full, or read-only here) is
	// no reason to fail: mkfs says what is wrong.
	if err != nil && ctx.Err() == nil {
		err = mkfs(ctx, on, path, size, spec.Inodes)
	}
	return err
}

var errNoTemplates = errors.New("no templates are kept")

// smallJournal is how much of an image the journal takes at most: fuse2fs does
// not write one, and mke2fs would give it up to 256 MiB.
const smallJournal = jobs.GiB

// mkfs makes an image with mke2fs. No blocks are reserved for root: there is
// no root inside.
func mkfs(ctx context.Context, on jobs.Starter, path string, size jobs.Bytes, inodes int64) error {
	root, err := os.MkdirTemp(filepath.Dir(path), prefixMkfs+"*")
	if err != nil {
		return err
	}
	defer func() { _ = disk.RemoveTree(root) }()
	if err := makeDirs(root); err != nil {
		return err
	}
	for _, d := range []string{"work", "."} {
		if err := os.Chmod(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	return mkfsFrom(ctx, on, path, root, size, inodes, false)
}

// mkfsFrom makes an image that holds what stands in root, also where hard to
// read: what its owner may not read, who stays its owner.
func mkfsFrom(ctx context.Context, on jobs.Starter, path, root string, size jobs.Bytes, inodes int64, hard bool) (err error) {
	mke2fs, err := tool("mke2fs")
	if err != nil {
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
	argv := []string{mke2fs, "-q", "-F", "-t", "ext3", "-m", "0",
		"-E", "root_owner=" + strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid()) + ",lazy_itable_init=1", "-d", root}
	if size > smallJournal {
		argv = append(argv, "-J", "size=16")
	}
	if inodes > 0 {
		argv = append(argv, "-N", strconv.FormatInt(inodes, 10))
	}
	if _, err = run.Output(ctx, on, jobs.Cmd{Argv: append(argv, tmp), OwnMounts: hard}); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("make an ext3 overlay of %s", size), Err: err,
			Hint: "is there space left? df -h " + filepath.Dir(path)}
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
	offsetMounted  = 0x2C // when it was mounted last
	offsetIncompat = 0x60
	magicExt       = 0xEF53
	stateClean     = 0x0001
	stateErrors    = 0x0002
	needsRecovery  = 0x0004
)

// checkExt3 repairs an image that was not unmounted cleanly. The flag in the
// superblock decides, and not e2fsck -n, which exits 0 for a dirty image; the
// container program would mount a dirty one writable without a word.
func checkExt3(ctx context.Context, on jobs.Starter, path string) (repaired bool, err error) {
	clean, err := ext3Clean(path)
	if err != nil || clean {
		return false, err
	}
	if _, err := fsck(ctx, on, path); err != nil {
		return false, err
	}
	return true, nil
}

// superblock reads what is known of an image that nothing has mounted.
func superblock(path string) (b [superblockSize]byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return b, err
	}
	defer f.Close()
	_, err = f.ReadAt(b[:], superblockAt)
	return b, err
}

// ext3Clean tells whether an image was unmounted, as its superblock says.
func ext3Clean(path string) (bool, error) {
	b, err := superblock(path)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if le.Uint16(b[offsetMagic:]) != magicExt {
		return false, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay image " + path + " is not an ext3 image",
			Hint: "berth overlay restore NAME LABEL brings a snapshot back; else use another overlay"}
	}
	state := le.Uint16(b[offsetState:])
	return state&stateClean != 0 && state&stateErrors == 0 && le.Uint32(b[offsetIncompat:])&needsRecovery == 0, nil
}

// fsck runs e2fsck to repair an image, whatever its flags say.
func fsck(ctx context.Context, on jobs.Starter, path string) (repaired bool, err error) {
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
		return false, &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("overlay image %s is damaged and e2fsck could not repair it (%s)", path, exit),
			Hint: "look at it with " + shellescape.QuoteCommand([]string{e2fsck, "-fn", path}) +
				"; restore it from a copy, or use another overlay name"}
	}
	return exit.Code == 1, nil
}
