// Package nodebin puts the program for the nodes in place, by its hash: the
// embedded berth-node of this architecture, or, in a plain `go build`, this
// program itself.
package nodebin

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// Install makes sure that the program stands in dir and returns its path. An
// existing one with the same hash in its name is used as it is: it was put
// there in one step, whole, and is never written again.
func Install(dir string) (string, error) { return installed(dir, forNodes) }

// Whole does the same with this program as it is, the command line included.
func Whole(dir string) (string, error) { return installed(dir, self) }

func installed(dir string, program func() (Program, error)) (string, error) {
	p, err := program()
	path := ""
	if err == nil {
		path, err = put(dir, p)
	}
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "install the program for the nodes", Err: err, Hint: "is there space left? df -h " + dir}
	}
	if err := runnable(path); err != nil {
		// Else each job would end at its script's last line, and be tried again.
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "programs cannot be run from " + dir + ", and berth's has to be, here and on the nodes",
			Err:  err,
			Hint: store.HintNoExec}
	}
	return path, nil
}

// runnable asks the kernel, which also looks at how the file system is mounted
// (noexec). Tests replace it.
var runnable = func(path string) error { return unix.Access(path, unix.X_OK) }

func forNodes() (Program, error) {
	if p, ok := For("linux", runtime.GOARCH); ok {
		return p, nil
	}
	return self()
}

// Self makes sure that this program, which is the one for the nodes, stands in
// dir, where it was started from or under its hash, and returns its path.
func Self(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if a, err := os.Stat(filepath.Dir(self)); err == nil {
		if b, err := os.Stat(dir); err == nil && os.SameFile(a, b) {
			return filepath.Join(dir, filepath.Base(self)), nil
		}
	}
	return Install(dir)
}

// put writes a program under its name, unless it stands there: a copy of this one,
// too, so that an upgrade of berth does not pull it away from under jobs that wait
// or run.
func put(dir string, p Program) (string, error) {
	path := filepath.Join(dir, p.Name)
	if whole(path, p) {
		return path, nil
	}
	data, err := p.Read()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Nothing is started while it is open: until it is another program, a child has
	// the file open for writing as well, and the kernel starts no such file
	// (ETXTBSY).
	syscall.ForkLock.RLock()
	tmp, err := disk.WriteTemp(dir, data, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(tmp) }()
	// Not by rename: of two who come first at once, the second would take the
	// file away that jobs of the first run from, and on NFS they would crash.
	err = os.Link(tmp, path)
	if err != nil && !whole(path, p) {
		err = os.Rename(tmp, path) // no hard links here, or a damaged file
	} else {
		err = nil
	}
	if err != nil {
		return "", err
	}
	return path, disk.SyncDir(dir)
}

// whole reports whether the program stands at path. Its name tells it from all
// others, so the size tells a damaged one well enough.
func whole(path string, p Program) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Size() == p.Size && fi.Mode().Perm()&0o100 != 0
}

// Embedded reports whether this program carries a berth-node.
func Embedded() bool {
	_, ok := packed(runtime.GOARCH)
	return ok
}
