//go:build berthnode

package engine

// builtin is nothing: what speaks HTTP, and the configuration, are left out of the
// program for the nodes, and so is [Open].
func builtin(string) []string { return nil }
