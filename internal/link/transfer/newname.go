package transfer

import (
	"crypto/rand"
	"strings"
)

// newPrefix begins the names of files that are not whole yet.
const newPrefix = ".berth-new-"

// NewName returns a random name for a file that will be renamed when it is
// whole.
func NewName() string { return newPrefix + strings.ToLower(rand.Text()[:16]) }
