package cli

import (
	"bufio"
	"context"

	"berth/jobs"
	"berth/overlay"

	"github.com/spf13/cobra"
)

func (a *app) overlayDiffCmd() *cobra.Command {
	var since string
	c := &cobra.Command{
		Use: "diff NAME", Short: "list what an overlay has changed",
		Long: `List the paths that an overlay has added to its image, changed in it, or deleted from
it; with --since those that differ from a snapshot. A file counts as changed by its
size, time, mode and owner. Of a deleted directory only the directory is listed. Where
the image cannot be read (it, or the program unsquashfs, is missing), what is in the
overlay is listed as written: it may be new or changed. An overlay that is in use is
read from its last snapshot.
` + overlayExit,
		Example: `  berth overlay diff deps
  berth overlay diff deps --since good`,
		Args: overlayArgs(1, "the name of one overlay"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			changes, err := set.Diff(ctx, args[0], since)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"name": args[0], "since": since, "changes": changes})
			}
			w := bufio.NewWriter(a.stdout)
			for _, ch := range changes {
				_, _ = w.WriteString(string(ch.Kind) + "\t" + jobs.Printable(ch.Path) + "\n")
			}
			return w.Flush()
		}),
	}
	c.Flags().StringVar(&since, "since", "", "compare with the snapshot `LABEL`")
	waitFlag(c)
	a.jsonFlag(c)
	return c
}
