package disk

import "os"

// FreshDir makes an empty private directory at path, in the place of whatever
// is there.
func FreshDir(path string) error {
	if err := RemoveTree(path); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o700)
}
