package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
	"berth/jobs"
)

// hiddenFor is how long a name that link(2) says exists may stay unseen: network
// file systems remember for some seconds that a name was missing. Tests shorten
// it.
var hiddenFor = 5 * time.Second

// CreateOnce writes a file that must be written at most once, by whoever comes
// first, and returns whether this call did. The data is on the disk before the
// name exists. link(2) decides the winner because it is the create that works
// on NFS (open(2), O_EXCL); after an unclear error the content tells, because a
// lost reply makes a won link look like EEXIST and nlink lies on some mounts.
// Where the winner matters, data must therefore differ from what others write.
func CreateOnce(path string, data []byte) (won bool, err error) {
	dir := filepath.Dir(path)
	failpoint.File(path, "begin")
	tmp, err := disk.WriteTemp(dir, data, 0o600)
	if err != nil {
		return false, err
	}
	failpoint.File(path, "synced")
	defer func() { _ = os.Remove(tmp) }()
	deadline := time.Now().Add(hiddenFor)
	for {
		lerr := os.Link(tmp, path)
		if lerr == nil {
			failpoint.File(path, "linked")
			err := disk.SyncDir(dir)
			failpoint.File(path, "done")
			return true, err
		}
		got, rerr := disk.ReadRegular(path, max(maxRecord, int64(len(data))))
		switch {
		case rerr == nil && bytes.Equal(got, data):
			return true, disk.SyncDir(dir)
		case rerr == nil:
			return false, nil
		case errors.Is(lerr, fs.ErrExist) && errors.Is(rerr, fs.ErrNotExist) && time.Now().Before(deadline):
			// Removed in between, or not seen yet: the next link tells.
			time.Sleep(50 * time.Millisecond)
		case noLinks(lerr):
			return false, &jobs.Error{Kind: jobs.KindConfig, Msg: "create " + path, Err: lerr, Hint: hintLinks}
		default:
			return false, fmt.Errorf("create %s: %w", path, lerr)
		}
	}
}

const hintLinks = "set BERTH_HOME to a directory of another file system; or, for sshfs, mount it without disable_hardlink, " +
	"from a server that has the extension hardlink@openssh.com"

// noLinks tells whether a failed link(2) may say that the file system has none: Linux turns the
// ENOSYS of a FUSE file system into EPERM, which is also what sshfs says of a name that exists.
func noLinks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM)
}

// CheckLinks makes a second name of a file in the same directory and removes it. Its error is that
// the file system has no hard links, by which [CreateOnce] decides: it is for what is refused
// before anything is begun.
func CheckLinks(file string) error {
	second := file + ".second"
	err := os.Link(file, second)
	if err == nil {
		return os.Remove(second)
	}
	if !noLinks(err) {
		return err
	}
	dir := filepath.Dir(file)
	m := disk.MountFor("/proc/self/mountinfo", dir)
	name, _ := m.Name()
	if m.Point != "" {
		name += " at " + m.Point
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory is on a file system without hard links (" + jobs.Printable(name) +
		"), by which berth decides who is first", Hint: hintLinks}
}

// makeDir makes a directory and its parents, all durable.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		if fi, serr := os.Stat(dir); serr == nil && fi.IsDir() {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(dir))
}

// writeSynced writes a new file and syncs its content.
func writeSynced(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	failpoint.File(path, "made")
	_, err = f.Write(data)
	failpoint.File(path, "written")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func encode(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(b) >= maxRecord { // written, it would be a damaged one
		return nil, fmt.Errorf("it takes %d bytes, and a record may have %d", len(b), maxRecord)
	}
	return append(b, '\n'), nil
}
