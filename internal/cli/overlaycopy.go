package cli

import (
	"context"
	"fmt"

	"berth/jobs"
	"berth/overlay"

	"github.com/spf13/cobra"
)

func (a *app) overlayCheckCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "check NAME", Short: "check an overlay for damage, and repair it",
		Long: `Check an overlay: an ext3 image with e2fsck, which also repairs it; a directory for
what another driver has written into it, which cannot be repaired. Each line says what
was wrong and has been repaired.
` + overlayExit,
		Example: `  berth overlay check deps`,
		Args:    overlayArgs(1, "the name of one overlay"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			repaired, err := set.Check(ctx, args[0], force)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"name": args[0], "sound": true, "repaired": append([]string{}, repaired...)})
			}
			if len(repaired) == 0 && a.errTTY {
				a.say("overlay %s is sound", args[0])
			}
			for _, m := range repaired {
				if _, err := fmt.Fprintln(a.stdout, jobs.Printable(m)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	forceFlag(c, &force)
	waitFlag(c)
	a.jsonFlag(c)
	return c
}

func (a *app) overlayGrowCmd() *cobra.Command {
	var force bool
	var size string
	c := &cobra.Command{
		Use: "grow NAME --size SIZE", Short: "make an overlay larger",
		Long: `Make an overlay that has a size larger: what a job with a full overlay needs. Of an ext3
image the work is done on a copy, so that an interruption changes nothing; the copy
takes space for a while.
` + overlayExit,
		Example: `  berth overlay grow deps --size 100GiB`,
		Args:    overlayArgs(1, "the name of one overlay"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			if size == "" {
				return usage("--size is missing: how large is it to be, all in all?")
			}
			to, err := jobs.ParseBytes(size)
			if err != nil {
				return usage("--size: %v", err)
			}
			return set.Grow(ctx, args[0], to, force)
		}),
	}
	c.Flags().StringVar(&size, "size", "", "the new `SIZE`, such as 100GiB")
	forceFlag(c, &force)
	waitFlag(c)
	return c
}

func (a *app) overlaySnapshotCmd() *cobra.Command {
	var force bool
	var label string
	c := &cobra.Command{
		Use: "snapshot NAME", Short: "keep a copy of an overlay's files",
		Long: `Keep a copy of an overlay as it is, beside it, and print its label. Blocks are shared
where the file system can (XFS, Btrfs).
` + overlayExit,
		Example: `  berth overlay snapshot deps --as good`,
		Args:    overlayArgs(1, "the name of one overlay"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			s, err := set.Snapshot(ctx, args[0], label, force)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"name": args[0], "snapshot": s})
			}
			_, err = fmt.Fprintln(a.stdout, s.Label)
			return err
		}),
	}
	c.Flags().StringVar(&label, "as", "", "`LABEL` of the snapshot (default the time, in UTC)")
	forceFlag(c, &force)
	waitFlag(c)
	a.jsonFlag(c)
	return c
}

func (a *app) overlayRestoreCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "restore NAME LABEL", Short: "set an overlay's files back to a snapshot",
		Long: `Set the files of an overlay back to a snapshot. Its present files are lost unless there
is a snapshot of them. The snapshot stays.
` + overlayExit,
		Example: `  berth overlay restore deps good`,
		Args:    overlayArgs(2, "an overlay and the label of a snapshot"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			return set.Restore(ctx, args[0], args[1], force)
		}),
	}
	forceFlag(c, &force)
	waitFlag(c)
	return c
}

func (a *app) overlayForkCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "fork NAME NEW", Short: "make a new overlay from the files of another one",
		Long: `Make a new overlay that begins with the files of another one, or with those of its last
snapshot while it is in use. Snapshots are not copied.
` + overlayExit,
		Example: `  berth overlay fork deps deps-2`,
		Args:    overlayArgs(2, "an overlay and the name of the new one"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			i, err := set.Fork(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"overlay": infoJSON(*i)})
			}
			return nil
		}),
	}
	waitFlag(c)
	a.jsonFlag(c)
	return c
}
