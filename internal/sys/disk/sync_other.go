//go:build !linux

package disk

import "syscall"

// SyncTree makes all that stands below dir durable, as far as sync(2) does.
func SyncTree(string) error {
	return syscall.Sync()
}
