package images

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"berth/jobs"
)

// mostRecord bounds a record of the cache, in bytes.
const mostRecord = 1 << 20

// readOwn reads a record of the cache. A link is none of berth's making and is
// not followed.
func readOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, planted(path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, mostRecord))
}

// ownDir makes a directory of the cache, and refuses what else may stand there.
func ownDir(dir string, mode fs.FileMode) (made bool, err error) {
	err = os.Mkdir(dir, mode)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	fi, err := os.Lstat(dir)
	if err == nil && !fi.IsDir() {
		err = planted(dir)
	}
	return false, err
}

func planted(path string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: path + " is no file or directory that berth has made", Hint: "who has put that there? ls -ld " + path}
}
