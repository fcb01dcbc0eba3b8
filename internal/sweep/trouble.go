package sweep

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"berth/internal/sweep/claims"
	"berth/internal/sys/disk"
)

// LastTrouble is why the last worker has ended before it could run anything; "" is that
// it has not.
func (s *Sweep) LastTrouble() string {
	all, err := s.Workers()
	if err != nil || len(all) == 0 {
		return ""
	}
	b, err := disk.ReadRegular(filepath.Join(s.WorkerDir(slices.Max(all)), claims.EndFile), 1<<20)
	var end struct {
		Why string `json:"why"`
	}
	if err != nil || json.Unmarshal(b, &end) != nil {
		return ""
	}
	return end.Why
}
