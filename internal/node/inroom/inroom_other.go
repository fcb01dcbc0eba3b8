//go:build !linux

package inroom

import (
	"context"
	"errors"

	"berth/jobs"
)

// Room starts commands in one room; this system has none.
type Room struct{ jobs.Starter }

// Open makes no room here.
func Open(context.Context, Options) (*Room, error) {
	return nil, unavailable(errors.ErrUnsupported)
}

// Close implements what a room has.
func (*Room) Close() *jobs.NetworkUse { return nil }
