package overlay

import "berth/jobs/store"

// RemoveTree removes a directory that a container has written, whatever modes
// it has left there, without following a symbolic link out of it.
func RemoveTree(path string) error { return store.RemoveTree(path) }
