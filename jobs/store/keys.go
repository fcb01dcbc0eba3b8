package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
	"berth/jobs"
)

const fileKey = "key.json"

// Key is key.json of an idempotency key: the one job that was submitted under
// it, or that whoever holds the lease of its directory is about to submit.
type Key struct {
	Version int    `json:"version"`
	Job     string `json:"job"` // its id, which is chosen before the job is made
	// Parts are hashes of what was asked for, part by part: the same key with
	// others is a mistake of the caller's.
	Parts map[string]string `json:"parts"`
	Time  time.Time         `json:"time"`
}

// KeyHash is the name of a caller's key in the ledger: its SHA-256 in hex.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// KeyDir is the directory of a key, by its hash: sharded as jobs are.
func (s *Store) KeyDir(hash string) string {
	return filepath.Join(s.home, "keys", hash[:min(2, len(hash))], hash)
}

// MakeKeyDir makes the directory of a key.
func (s *Store) MakeKeyDir(hash string) (string, error) {
	dir := s.KeyDir(hash)
	if err := makeDir(dir); err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "record the idempotency key", Err: err,
			Hint: "is there space left? df -h " + s.home + "; df -i " + s.home}
	}
	return dir, nil
}

// LoadKey reads the record of a key; nil is that it was not used.
func LoadKey(dir string) (*Key, error) {
	path := filepath.Join(dir, fileKey)
	b, err := readOptional(path)
	if b == nil || err != nil {
		return nil, err
	}
	k := &Key{}
	if err := decode(path, b, k, &k.Version); err != nil {
		return nil, err
	}
	if !jobs.ValidID(k.Job) {
		return nil, damaged(path, errors.New("it names no job"))
	}
	return k, nil
}

// SetKey records the job that is made under a key. Only the holder of the lease
// of its directory may, and returns whether it was the first.
func SetKey(dir string, k Key) (bool, error) {
	k.Version = 1
	return createJSON(dir, fileKey, k)
}

// DropKey takes that back: there is no such job, and will be none. Only the
// holder of the lease may.
func DropKey(dir string) error {
	failpoint.Hit("key.drop")
	if err := os.Remove(filepath.Join(dir, fileKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	failpoint.Hit("key.dropped")
	return disk.SyncDir(dir)
}

// forget removes a key with its job, if it is still that job's: the next who
// uses it submits another one.
func (s *Store) forget(hash, job string) error {
	if len(hash) != 2*sha256.Size {
		return nil
	}
	dir := s.KeyDir(hash)
	k, err := LoadKey(dir)
	if err != nil || k == nil || k.Job != job {
		return err
	}
	return DropKey(dir)
}
