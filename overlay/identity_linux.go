package overlay

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// identity are the files that the container program reads from outside of a
// writable image, to bind them over it with the user added. Of a symbolic link
// it would show inside what that leads to on this machine. The binds keep
// commands from replacing them, but not from making one that an image does not
// have.
var identity = []string{"/etc/passwd", "/etc/group"}

// maxIdentity bounds what is copied of one.
const maxIdentity = 4 << 20

// makeIdentity makes each a plain file, as seen from the image's own root:
// empty where there is none, and in place of a link with what that leads to
// inside.
func makeIdentity(root string) error {
	for _, name := range identity {
		path := filepath.Join(root, name)
		if fi, err := os.Lstat(filepath.Dir(path)); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link in the image, which the container program would follow outside of it", filepath.Dir(name))
		}
		fi, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case err == nil && fi.Mode()&fs.ModeSymlink == 0:
			continue // of what is no file, nothing is read
		}
		var content []byte
		if fi != nil {
			content = plainContent(path)
			err = os.Remove(path)
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = writeNew(path, content)
		}
		if err != nil {
			return fmt.Errorf("make %s a plain file in the image: %w", name, err)
		}
	}
	return nil
}

// plainContent is the content of the regular file that path leads to, or none.
func plainContent(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxIdentity))
	if err != nil {
		return nil
	}
	return b
}

func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
