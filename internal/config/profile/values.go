package profile

import "berth/internal/config/strict"

// Scratch reads a directory of a node, whose variables are expanded there.
func Scratch(v strict.Value) string { return scratch(v) }
