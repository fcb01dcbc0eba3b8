// Package nodebin puts the program for the nodes in place, by its hash: the
// embedded berth-node of this architecture, or, in a plain `go build`, this
// program itself.
package nodebin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Install makes sure that the program stands in dir and returns its path. An
// existing one with the same hash in its name is used as it is: it was put
// there by rename, whole, and is never written again.
func Install(dir string) (string, error) {
	data, sum := embedded(runtime.GOARCH)
	if data == nil {
		return installSelf(dir)
	}
	path := filepath.Join(dir, "berth-node-"+sum[:12])
	if fi, err := os.Stat(path); err == nil && fi.Size() == int64(len(data)) {
		return path, nil
	}
	return path, write(dir, path, data)
}

// installSelf copies the running program, so that an upgrade of berth does not
// pull it away from under jobs that wait or run.
func installSelf(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, "berth-"+hex.EncodeToString(sum[:])[:12])
	if fi, err := os.Stat(path); err == nil && fi.Size() == int64(len(data)) {
		return path, nil
	}
	return path, write(dir, path, data)
}

func write(dir, path string, data []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("install the program for the nodes: %w", err)
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("install the program for the nodes: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o700)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if rerr := os.Remove(f.Name()); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("install the program for the nodes: %w", err)
	}
	return nil
}

// Embedded tells whether this program carries a berth-node.
func Embedded() bool {
	data, _ := embedded(runtime.GOARCH)
	return data != nil
}
