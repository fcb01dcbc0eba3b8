package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// FileUsage is what the commands of an attempt, or of an environment since its user has
// stopped it, have asked models for: whoever goes on from there counts on. Its supervisor
// alone writes it.
const FileUsage = "usage.json"

type usageRecord struct {
	Version int        `json:"version"`
	Time    time.Time  `json:"time"` // UTC
	Usage   jobs.Usage `json:"usage"`
	Boxes   []string   `json:"boxes,omitempty"` // see [LoadSum]
}

// LoadUsage reads what stands in the directory of an attempt or environment; nil is
// nothing. One that cannot be read is an error, because caps hold by it.
func LoadUsage(dir string) (*jobs.Usage, error) {
	u, _, err := LoadSum(dir)
	return u, err
}

// LoadSum reads what stands in the directory of a sweep's worker, and the names of the
// directories below it whose count is in that already, the last ones at the end.
func LoadSum(dir string) (u *jobs.Usage, boxes []string, err error) {
	path := filepath.Join(dir, FileUsage)
	b, err := disk.ReadRegular(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	var r usageRecord
	if err == nil {
		err = decode(path, b, &r, &r.Version)
	}
	if err == nil && r.Version < 1 {
		err = errors.New("it has no version")
	}
	if u := r.Usage; err == nil && (u.Requests < 0 || u.Input < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Output < 0 || u.USD < 0) {
		err = errors.New("a count is negative")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &r.Usage, r.Boxes, nil
}

// SetUsage replaces it, and returns when it is durable.
func SetUsage(dir string, u jobs.Usage) error { return SetSum(dir, u, nil) }

// SetSum replaces it with the names of [LoadSum], and returns when it is durable.
func SetSum(dir string, u jobs.Usage, boxes []string) error {
	b, err := json.MarshalIndent(usageRecord{Version: 1, Time: time.Now().UTC(), Usage: u, Boxes: boxes}, "", "  ")
	if err != nil {
		return err
	}
	err = disk.Replace(filepath.Join(dir, FileUsage), append(b, '\n'), 0o600)
	var path *fs.PathError
	var link *os.LinkError
	switch { // without the name of a temporary file, so that the same trouble has the same words
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", FileUsage, err)
	}
	return nil
}

// ForgetUsage removes it, so that it is counted from the beginning.
func ForgetUsage(dir string) error {
	if err := os.Remove(filepath.Join(dir, FileUsage)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
