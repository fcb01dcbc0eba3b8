package store

import (
	"encoding/json"
	"math"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

const (
	fileProgress = "progress.json"
	maxProgress  = 64 << 10
)

// SetProgress replaces what an attempt's task has told of itself. Its runner alone does.
func SetProgress(attemptDir string, p jobs.Progress) error {
	b, err := encode(p)
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(attemptDir, fileProgress), b, 0o600)
}

// LoadProgress is that; nil is nothing, or that it cannot be read.
func LoadProgress(attemptDir string) *jobs.Progress {
	b, err := disk.ReadRegular(filepath.Join(attemptDir, fileProgress), maxProgress)
	var p jobs.Progress
	if err != nil || json.Unmarshal(b, &p) != nil || len(p.Metrics) > jobs.MaxMetrics {
		return nil
	}
	for _, v := range p.Metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	}
	return &p
}
