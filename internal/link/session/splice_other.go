//go:build !linux

package session

import "os"

// splice is Linux's.
func splice(_, _ *os.File) (done bool, err error) { return false, nil }
