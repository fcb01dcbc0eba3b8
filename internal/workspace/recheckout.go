package workspace

import (
	"context"
	"fmt"
	"path/filepath"

	"berth/internal/sys/disk"
)

// recheckDir has the git directory of a [Git.Recheckout] that is under way.
const recheckDir = "recheck"

// Recheckout makes a work tree at to (a further one inside it), after [Git.Collect], that is a fresh clone
// of the result commit; an empty commit means the base. What is not in the result,
// ignored files among it, is not there: checks see what the branch holds and
// nothing else. The task's own work tree stays as it is.
func (g *Git) Recheckout(ctx context.Context, attemptDir string, src Source, commit, to string) error {
	// Its own git directory has both, and the user's repository may be away.
	from := src
	from.Repo, from.Top = filepath.Join(attemptDir, GitDir), ""
	if commit != "" {
		from.Base = commit
	}
	if err := g.settleBase(ctx, from.Repo, src); err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	beside := filepath.Join(attemptDir, recheckDir)
	err := disk.FreshDir(beside)
	if err == nil {
		there := &Git{Run: g.Run, Work: to, Below: g.Below, Others: g.Others}
		_, err = there.prepare(ctx, from, beside, func(string) (Source, error) { return from, nil })
	}
	if err != nil {
		return fmt.Errorf("check out the result: %w", err)
	}
	return disk.RemoveTree(beside)
}
