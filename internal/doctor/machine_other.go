//go:build !linux

package doctor

import (
	"context"
	"errors"
)

// Containers and nodes are Linux: elsewhere berth is a client, and what would
// be looked at is on another machine.

func scratchBase(Where) (string, error) { return "", errors.New("containers need Linux") }

func elsewhere(context.Context, *look) []Finding {
	return one(Skip, "this machine is a client only: berth runs containers on Linux", "")
}

var (
	checkScratch    = elsewhere
	checkState      = elsewhere
	checkHome       = elsewhere
	checkNamespaces = elsewhere
	checkFUSE       = elsewhere
	checkHeld       = elsewhere
	checkLogout     = elsewhere
	checkPurge      = elsewhere
	checkNetwork    = elsewhere
	checkWay        = elsewhere
	checkDevices    = elsewhere
)
