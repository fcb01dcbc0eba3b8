package doctor

import (
	"testing"

	"berth/jobs/jobstest"
)

// TestFlaws: the table is well-formed.
func TestFlaws(t *testing.T) { jobstest.Flaws(t, runcFlaws, false) }
