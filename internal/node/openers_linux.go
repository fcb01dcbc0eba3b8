package node

import (
	"berth/backends/local"
	"berth/jobs"
)

// openers are the backends whose environments this program can keep.
func openers() []jobs.Opener {
	return []jobs.Opener{local.Backend{}}
}
