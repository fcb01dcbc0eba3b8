package keys

import "berth/internal/config/strict"

// CheckExtra complains about an option of sbatch that may not be passed
// through, and tells whether it may.
func CheckExtra(v strict.Value, s string) bool { return checkExtra(v, s) }
