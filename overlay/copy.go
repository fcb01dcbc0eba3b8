package overlay

import (
	"context"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// copyLayer copies a layer: of a directory its upper part alone, because
// work/work has mode 000 and means nothing. Blocks are shared where the file
// system can.
func copyLayer(ctx context.Context, on jobs.Starter, driver, from, to string) error {
	if driver == jobs.DriverExt3 {
		_, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"cp", "--no-dereference", "--reflink=auto", "--sparse=always", "--", from, to}})
		return err
	}
	for _, d := range []string{to, filepath.Join(to, "work")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	can, _, _ := run.OwnFiles(ctx)
	_, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"cp", "-a", "--reflink=auto", "--", filepath.Join(from, "upper"), to}, OwnFiles: can})
	return err
}

// syncLayer makes the content of a layer durable.
func syncLayer(driver, layer string) error {
	if driver == jobs.DriverExt3 {
		return disk.SyncFile(layer)
	}
	return disk.SyncTree(layer)
}
