//go:build !linux

package cli

import (
	"context"

	"berth/engine"
)

// gcScratch has nothing to look for: no node of this kind runs attempts.
func (*app) gcScratch(context.Context, *engine.Engine, bool, *[]engine.Left) error { return nil }

// gcContainers neither.
func (*app) gcContainers(_ *engine.Engine, _, _ bool, _ *[]engine.Left) error { return nil }
