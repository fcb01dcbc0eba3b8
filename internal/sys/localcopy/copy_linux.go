package localcopy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is the file that this process runs, also where it has been removed.
const program = "/proc/self/exe"

// Copy puts a copy of this process's program into dir, as name, which no user may
// write. Where nothing can be executed there, the path is the program's own and
// why says so.
func Copy(dir, name string) (path, why string, err error) {
	if noexec(dir) {
		path, err = os.Executable()
		return path, "nothing can be executed in " + dir + " (noexec)", err
	}
	path = filepath.Join(dir, name)
	// Nothing is started while it is open: until it is another program, a child
	// has the file open for writing as well, and the kernel starts no such file
	// (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return "", "", err
	}
	if err := errors.Join(copyTo(f), f.Close()); err != nil {
		_ = os.Remove(path)
		return "", "", err
	}
	return path, "", nil
}

func copyTo(f *os.File) error {
	self, err := os.Open(program)
	if err != nil {
		return err
	}
	defer self.Close()
	_, err = io.Copy(f, self)
	return err
}

// noexec tells whether the file system of a directory is mounted so.
func noexec(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}
