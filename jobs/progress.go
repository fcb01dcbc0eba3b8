package jobs

import "time"

// Progress is what a task tells of itself while it runs: all of it is the task's word.
type Progress struct {
	Version int                `json:"version"`
	Time    time.Time          `json:"time"`
	Text    string             `json:"text,omitempty"`    // one line, printable, at most [MaxProgress] characters
	Metrics map[string]float64 `json:"metrics,omitempty"` // at most [MaxMetrics], finite
}

// Bounds of it.
const (
	MaxProgress = 200
	MaxMetrics  = 100
)
