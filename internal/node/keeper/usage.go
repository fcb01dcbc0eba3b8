package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// fileUsage has what an environment's commands have asked models for since its user has
// stopped it: the next keeper goes on from there, so that to be idle resets no cap. Only
// the holder of the environment's lease writes it.
const fileUsage = "usage.json"

type usageRecord struct {
	Version int        `json:"version"`
	Time    time.Time  `json:"time"` // UTC
	Usage   jobs.Usage `json:"usage"`
}

// Usage reads what the commands of the environment in dir have asked models for since
// it was stopped by its user; nil is nothing.
func Usage(dir string) (*jobs.Usage, error) {
	path := filepath.Join(dir, fileUsage)
	b, err := disk.ReadRegular(path, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r usageRecord
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read " + path, Err: err,
			Hint: "berth env stop " + filepath.Base(dir) + " begins to count again"}
	}
	return &r.Usage, nil
}

// ForgetUsage begins to count again. The caller has stopped the environment.
func ForgetUsage(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileUsage)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "begin to count requests to models again", Err: err}
	}
	return nil
}

func saveUsage(dir string, u jobs.Usage) error {
	b, err := json.MarshalIndent(usageRecord{Version: 1, Time: time.Now().UTC(), Usage: u}, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, fileUsage), append(b, '\n'), 0o600)
}
