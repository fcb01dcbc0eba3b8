// Package ids makes the ids of jobs and attempts. It is apart from package jobs
// because the library brings network and database code with it, which the
// program on the nodes, that makes no ids, would have to hold in memory.
package ids

import (
	"fmt"

	"github.com/google/uuid"
)

// New returns a fresh job or attempt id: a UUIDv7 in its usual text form. The
// first digits are a clock, so people are shown the last ones.
func New() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return id.String(), nil
}
