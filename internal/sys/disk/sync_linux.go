package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SyncTree makes all that stands below dir durable, by syncing its file system
// (syncfs(2)): one call for however many files.
func SyncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", dir, err)
	}
	return nil
}
