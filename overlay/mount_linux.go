package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// MountMain is the verb overlay-mount of berth-node: it mounts an overlay in
// its own user and mount namespace, makes the mount points that the container
// program will want and cannot make itself in a writable image, drops its
// capabilities and becomes the given program. Nothing of it stays but the
// mount, which ends with the last process of the namespace, whatever kills it.
//
// It is to be started with [jobs.Cmd.OwnMounts]; otherwise it starts itself
// that way, and stays as that process's parent.
func MountMain(args []string, stderr io.Writer) int {
	m, argv, ok := parseMount(args)
	if !ok {
		_, _ = fmt.Fprintln(stderr, mountUsage)
		return jobs.CodeUsage
	}
	if !run.HasOwnMounts() {
		return mountAgain(args, stderr)
	}
	// Capabilities and the program that replaces us are matters of a thread.
	runtime.LockOSThread()
	err := m.mount()
	if err == nil {
		err = m.makePoints()
	}
	if err == nil {
		err = dropCapabilities()
	}
	if err == nil {
		err = syscall.Exec(argv[0], argv, os.Environ())
	}
	_, _ = fmt.Fprintf(stderr, "berth-node: overlay-mount: %v\n", err)
	return jobs.CodeConfig
}

// mountAgain starts this program in namespaces of its own and waits for it.
func mountAgain(args []string, stderr io.Writer) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	p, err := run.Local{}.Start(context.Background(), jobs.Cmd{
		Argv: append([]string{"/proc/self/exe", "overlay-mount"}, args...), OwnMounts: true,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: stderr,
	})
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth-node: overlay-mount: a user namespace cannot be made here: %v\n", err)
		return jobs.CodeConfig
	}
	// Whoever has the parent die has its child end by the closed input.
	_ = os.Stdin.Close()
	_ = os.Stdout.Close()
	go func() {
		for s := range signals {
			_ = p.Signal(s.(syscall.Signal))
		}
	}()
	exit, err := p.Wait()
	if err != nil {
		return jobs.CodeInfra
	}
	return exit.Code
}

// mount mounts the overlay. "userxattr" has the kernel keep its marks of
// replaced directories in attributes that a user may write; without it they
// cannot be written in a user namespace, and rm -r followed by mkdir of a
// directory of the image fails.
func (m Mount) mount() error {
	opts := make([]string, 0, 4)
	for _, o := range [][2]string{{"lowerdir", m.Lower}, {"upperdir", m.Upper}, {"workdir", m.Work}} {
		dir := o[1]
		if strings.ContainsAny(dir, `:,\`) {
			// These mean something in the options, and how they are escaped
			// differs between kernels; the descriptor's path has none.
			fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return &os.PathError{Op: "open", Path: dir, Err: err}
			}
			dir = fmt.Sprintf("/proc/self/fd/%d", fd)
		}
		opts = append(opts, o[0]+"="+dir)
	}
	opts = append(opts, "userxattr")
	if err := unix.Mount("overlay", m.Merged, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.Join(opts, ",")); err != nil {
		return fmt.Errorf("mount the overlay of %s over %s: %w", m.Upper, m.Lower, err)
	}
	return nil
}

// makePoints makes the mount points in the overlay, as seen from its root: a
// symbolic link of the image must not lead out of it.
func (m Mount) makePoints() error {
	home, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(home) }()
	if err := unix.Chroot(m.Merged); err != nil {
		return fmt.Errorf("enter the overlay: %w", err)
	}
	umask := syscall.Umask(0o022)
	err = m.makeInside()
	syscall.Umask(umask)
	if err2 := unix.Fchdir(home); err == nil {
		err = err2
	}
	if err2 := unix.Chroot("."); err == nil {
		err = err2
	}
	return err
}

func (m Mount) makeInside() error {
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, dir := range m.Dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the mount point %s in the image: %w", dir, err)
		}
	}
	for _, file := range m.Files {
		if err := makeFile(file); err != nil {
			return fmt.Errorf("make the mount point %s in the image: %w", file, err)
		}
	}
	return makeIdentity("/")
}

// makeFile makes a file where none is, also in place of a link that leads
// nowhere: that is what /etc/resolv.conf is in images of systemd's.
func makeFile(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if fi, err := os.Lstat(file); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	err := writeNew(file, nil)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// dropCapabilities gives up what the mount needed: what this thread becomes by
// exec has none.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
