package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/disk"
)

// ChildPrefix begins the names of files in an attempt's directory that are for jobs which
// its task submits: they live no longer than a request, or what comes back of one.
const ChildPrefix = "child-"

// Cleanup removes the work tree, berth's git directory and what an interrupted
// Intake, Recheckout or request for a job left from the attempt's directory, and nothing else. Directories
// without write permission are made writable; symbolic links are removed and
// not followed. What cannot be removed is in the error, and the rest is gone.
// It may be repeated.
func Cleanup(attemptDir string) error {
	entries, err := os.ReadDir(attemptDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up the attempt: %w", err)
	}
	own := []string{WorkDir, WorkDir + partSuffix, GitDir, recheckDir}
	var errs []error
	for _, e := range entries {
		if n := e.Name(); slices.Contains(own, n) || strings.HasPrefix(n, quarantinePrefix) || strings.HasPrefix(n, ChildPrefix) {
			if err := disk.RemoveTree(filepath.Join(attemptDir, n)); err != nil {
				errs = append(errs, fmt.Errorf("clean up the attempt: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
