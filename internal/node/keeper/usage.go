package keeper

import (
	"path/filepath"

	"berth/jobs"
	"berth/jobs/store"
)

// Usage reads what the commands of the environment in dir have asked models for since
// it was stopped by its user; nil is nothing. The next keeper goes on from there, so that
// to be idle resets no cap.
func Usage(dir string) (*jobs.Usage, error) {
	u, err := store.LoadUsage(dir)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Err: err, Hint: "berth env stop " + filepath.Base(dir) + " begins to count again"}
	}
	return u, nil
}

// ForgetUsage begins to count again. The caller has stopped the environment.
func ForgetUsage(dir string) error {
	if err := store.ForgetUsage(dir); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "begin to count requests to models again", Err: err}
	}
	return nil
}
