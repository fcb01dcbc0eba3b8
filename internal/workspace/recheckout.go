package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"berth/internal/disk"
)

// recheckDir is where the new work tree is made before it takes the old one's
// place.
const recheckDir = "recheck"

// Recheckout replaces the task's work tree in attemptDir, after [Git.Collect],
// by a fresh clone of the result commit; an empty commit means the base. What
// is not in the result, ignored files among it, is gone then: checks see what
// the branch holds and nothing else.
func (g *Git) Recheckout(ctx context.Context, attemptDir string, src Source, commit string) error {
	from := src
	if commit != "" {
		from.Repo, from.Top, from.Base = filepath.Join(attemptDir, GitDir), "", commit
	}
	fresh := filepath.Join(attemptDir, recheckDir)
	if err := disk.RemoveTree(fresh); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	if _, err := g.Prepare(ctx, from, fresh); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	if err := disk.RemoveTree(filepath.Join(attemptDir, WorkDir)); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	if err := os.Rename(filepath.Join(fresh, WorkDir), filepath.Join(attemptDir, WorkDir)); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	return disk.RemoveTree(fresh)
}
