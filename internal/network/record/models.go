package record

import (
	"path/filepath"

	"berth/jobs"
	"berth/jobs/store"
)

// Models is what the commands of an attempt, or an environment, with this directory have
// asked models for, as far as its supervisor has recorded it by now; nil is nothing. The
// count that it keeps comes first: network.jsonl has a bound.
func Models(dir string) (*jobs.Usage, error) {
	if u, err := store.LoadUsage(dir); u != nil || err != nil {
		return u, err
	}
	f, err := Read(filepath.Join(dir, store.FileNetwork))
	if err != nil {
		return nil, err
	}
	if u := f.Use(); u != nil {
		return u.Models, nil
	}
	return nil, nil
}
