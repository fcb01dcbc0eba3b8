package apptainer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"berth/jobs"
)

// What "apptainer build" writes into the files that it packs, as if they were
// its own: it follows the links there on this machine, and a task may have put
// them into its overlay.
const ownFiles = ".singularity.d" // of the container program, in an image

// emptied are files that it empties, and gives a mode: links in images of
// systemd's, whose place containers have something else bound over.
var emptied = []string{"etc/hosts", "etc/resolv.conf"}

// unplant makes the files below dir such that the container program, which
// packs them, writes nothing elsewhere, or refuses them.
func unplant(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// Ways to what it makes: a link stays for one that leads to a place in there.
	for _, name := range []string{"etc", "var"} {
		if fi, err := root.Lstat(name); err != nil || fi.IsDir() {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if fi, err := root.Stat(name); err != nil || !fi.IsDir() {
			return plantedError(name)
		}
	}
	if err := plainBelow(root, ownFiles); err != nil {
		return err
	}
	for _, name := range emptied {
		fi, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if fi.Mode().IsRegular() || fi.IsDir() {
			continue
		}
		if err := root.Remove(name); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// plainBelow refuses what is neither a directory nor a file.
func plainBelow(root *os.Root, name string) error {
	fi, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	case fi.Mode().IsRegular():
		return nil
	case !fi.IsDir():
		return plantedError(name)
	}
	d, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	for _, n := range names {
		if err := plainBelow(root, path.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

func plantedError(name string) error {
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg: fmt.Sprintf("the overlay has a link or a special file at %q, "+
			"through which making an image would write to files of this machine", "/"+name),
		Hint: "what has put it there? remove it in a container with that overlay; a tar of it can be exported"}
}
