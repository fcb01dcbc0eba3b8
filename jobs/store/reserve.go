package store

import (
	"crypto/rand"
	"os"
	"path/filepath"
)

// reserveSize is what the last records of an attempt take, and several times more.
const reserveSize = 128 << 10

// Reserve keeps room for the last records of an attempt: others may fill the file
// system until then. It is random, so that no file system stores it as less. Only
// the attempt's runner makes it, once.
func Reserve(attemptDir string) error {
	f, err := os.OpenFile(filepath.Join(attemptDir, fileReserve), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	b := make([]byte, reserveSize)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// DropReserve gives the room back, and tells whether there was any.
func DropReserve(attemptDir string) bool {
	return os.Remove(filepath.Join(attemptDir, fileReserve)) == nil
}
