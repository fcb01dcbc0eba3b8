//go:build !linux

package engine

import (
	"context"

	"berth/internal/node/keeper"
)

// sweepKilled has nothing to do where no keeper runs on the machine itself.
func sweepKilled(context.Context, *keeper.Info) {}
