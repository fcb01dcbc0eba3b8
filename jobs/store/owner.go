package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"berth/jobs"
)

// fileOwner is "owner" in the state directory.
const fileOwner = "owner"

// Owner returns the word by which this state directory's things are known at
// services that others use too: 32 random hex digits, made once, which say
// nothing of who or where. Where it was lost nothing there counts as ours.
func (s *Store) Owner() (string, error) {
	path := filepath.Join(s.home, fileOwner)
	fail := func(err error) (string, error) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "settle what this state directory is called at services", Err: err, Hint: "see " + path}
	}
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, 16)
		if _, err := rand.Read(fresh); err != nil {
			return fail(err)
		}
		if _, err := CreateOnce(path, []byte(hex.EncodeToString(fresh)+"\n")); err != nil {
			return fail(err)
		}
		b, err = readRecord(path) // whoever was first
	}
	if err != nil {
		return fail(err)
	}
	owner := strings.TrimSpace(string(b))
	if raw, err := hex.DecodeString(owner); err != nil || len(raw) != 16 {
		return fail(errors.New("it does not hold 32 hex digits"))
	}
	return owner, nil
}
