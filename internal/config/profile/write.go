package profile

import (
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
)

// CheckName refuses what cannot name a profile.
func CheckName(name string) error {
	if len(name) > 64 || !nameForm().MatchString(name) {
		return badName(name)
	}
	return nil
}

// Write puts the text of a profile into a file, whole or not at all. One that
// exists is [os.ErrExist], unless over is set.
func Write(file string, text []byte, over bool) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	put := disk.Create
	if over {
		put = disk.Replace
	}
	return put(file, text, 0o600)
}
