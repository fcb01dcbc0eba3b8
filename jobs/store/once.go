package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/jobs"
)

// CreateOnce writes a file that must be written at most once, by whoever comes
// first, and returns whether this call did. The data is on the disk before the
// name exists. link(2) decides the winner because it is the create that works
// on NFS (open(2), O_EXCL); after an unclear error the content tells, because a
// lost reply makes a won link look like EEXIST and nlink lies on some mounts.
func CreateOnce(path string, data []byte) (won bool, err error) {
	dir := filepath.Dir(path)
	tmp, err := writeTemp(dir, data)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(tmp) }()
	if err := os.Link(tmp, path); err != nil {
		got, rerr := os.ReadFile(path)
		if rerr != nil {
			return false, fmt.Errorf("create %s: %w", path, err)
		}
		return bytes.Equal(got, data), nil
	}
	return true, syncDir(dir)
}

// writeTemp writes data to a new file in dir and syncs it.
func writeTemp(dir string, data []byte) (string, error) {
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// syncDir makes new names in a directory durable. File systems that cannot
// sync a directory say EINVAL, and then there is nothing to do.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil && !errors.Is(err, errInvalid) {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// writeSynced writes a new file and syncs its content.
func writeSynced(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
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
	return append(b, '\n'), nil
}

// readJSON reads one of the ledger's files. A missing file is false without an
// error; a file of a newer schema is refused rather than half understood.
func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, &jobs.Error{Kind: jobs.KindInfra, Msg: "the ledger's file " + path + " cannot be read", Err: err}
	}
	return true, nil
}
