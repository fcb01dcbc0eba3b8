//go:build !linux

package overlay

// TakesDirectories is for the clusters' nodes, which run Linux.
func TakesDirectories(string) bool { return true }
