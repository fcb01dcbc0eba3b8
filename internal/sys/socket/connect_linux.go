package socket

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Connect connects a socket to a name: a path of any length, or an abstract one
// that begins with '@'.
func Connect(fd int, name string) error {
	const most = 107 // of sun_path; a longer one has another name
	if len(name) > most {
		dir, err := unix.Open(filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(dir) }()
		name = fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(name))
	}
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}
