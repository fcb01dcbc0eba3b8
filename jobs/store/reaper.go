package store

import (
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// FileReaperLog takes what the reapers of an attempt write.
const FileReaperLog = "reaper.log"

// SetUnfollowed says what could not be submitted. The last word counts.
func SetUnfollowed(attemptDir string, v jobs.Unfollowed) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return replace(filepath.Join(attemptDir, fileUnfollow), b)
}

// DropUnfollowed takes it back.
func DropUnfollowed(attemptDir string) { _ = os.Remove(filepath.Join(attemptDir, fileUnfollow)) }

// WriteReaper writes the job script of an attempt's reaper and returns its
// path. The scheduler has read it when the submission has ended, so the next
// one takes its place.
func WriteReaper(attemptDir, script string) (string, error) {
	path := filepath.Join(attemptDir, "reaper.sh")
	return path, replace(path, []byte(script))
}

// FileStandbyLog takes what the standbys of an attempt write.
const FileStandbyLog = "standby.log"

// WriteStandby writes the job script of an attempt's standby and returns its
// path; the next one takes its place, as a reaper's does.
func WriteStandby(attemptDir, script string) (string, error) {
	path := filepath.Join(attemptDir, "standby.sh")
	return path, replace(path, []byte(script))
}

// replace puts a file in the place of another, whole.
func replace(path string, data []byte) error {
	tmp, err := disk.WriteTemp(filepath.Dir(path), data, 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return nil
}
