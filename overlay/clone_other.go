//go:build !linux

package overlay

func sharesBlocks(string) bool { return false }
