//go:build !linux

package keeper

import (
	"context"
	"io"

	"berth/jobs"
)

// Open fails: environments are kept on Linux.
func Open(context.Context, string, OpenOptions) (io.ReadWriteCloser, *Report, error) {
	return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "environments on this machine need Linux", Hint: "use one on another machine: --backend ssh"}
}
