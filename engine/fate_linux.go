package engine

import (
	"context"
	"path/filepath"

	nodescratch "berth/internal/node/container"
	"berth/internal/node/keeper"
	"berth/internal/sys/lease"
)

// sweepKilled removes the scratch directory of a keeper that was killed, as whoever begins
// something on the machine does.
func sweepKilled(ctx context.Context, last *keeper.Info) {
	for _, dir := range nodescratch.AbandonedScratch(filepath.Dir(last.Scratch), lease.Self()) {
		if dir == last.Scratch {
			_ = nodescratch.RemoveAbandoned(ctx, dir) // it is looked for
		}
	}
}
