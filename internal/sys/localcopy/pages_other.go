//go:build !linux

package localcopy

import "os"

// Copy is for the nodes, which run Linux.
func Copy(string, string) (path, why string, err error) {
	path, err = os.Executable()
	return path, "", err
}

// Pages is for the nodes, which run Linux.
func Pages(string) error { return nil }
