package overlay

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"berth/internal/lease"
	"berth/jobs"
)

// Owner is who holds an overlay's lease, as the owner described itself.
type Owner = lease.Owner

// Lease is the right to write one overlay.
type Lease = lease.Lease

// Acquire takes the lease of the overlay in dir, see [lease.Acquire]. A lease
// that stands is an error of kind KindAgain that names its holder.
func Acquire(dir string, me Owner, gone func(Owner) bool) (*Lease, error) {
	name := filepath.Base(dir)
	l, err := lease.Acquire(dir, me, gone)
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		o := held.Owner
		by, hint := "attempt "+jobs.Short(o.Attempt), "wait for that job (berth ps), or give this task an overlay of its own"
		if o.Environment != "" {
			by, hint = "environment "+o.Environment, "stop that environment (berth env ls), or use an overlay of its own"
		}
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("overlay %s is in use by %s on %s since %s", name, by, o.Host, o.Time.Format(time.RFC3339)), Hint: hint}
	case err != nil:
		return nil, fmt.Errorf("lease overlay %s: %w", name, err)
	}
	return l, nil
}
