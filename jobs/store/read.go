package store

import (
	"errors"

	"berth/internal/sys/disk"
)

// maxRecord bounds a record: none that berth writes comes near it, and the
// mirror of a cluster's takes no more.
const maxRecord = 8 << 20

// readRecord reads a file of the ledger. What is no regular file, or is too
// large, is a damaged record: a FIFO would be waited for without end, and
// gigabytes would end whoever lists all jobs.
func readRecord(path string) ([]byte, error) {
	b, err := disk.ReadRegular(path, maxRecord)
	if errors.Is(err, disk.ErrNoRecord) {
		return nil, damaged(path, err)
	}
	return b, err
}
