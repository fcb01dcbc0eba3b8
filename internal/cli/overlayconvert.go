package cli

import (
	"berth/jobs"
	"berth/overlay"

	"github.com/spf13/cobra"
)

func (a *app) overlayConvertCmd() *cobra.Command {
	var c overlay.Conversion
	var size string
	cmd := &cobra.Command{
		Use: "convert NAME [--driver DRIVER] [--image SIF]", Short: "change the driver of an overlay, or the image that it belongs to",
		Long: `Change the driver that writes an overlay, or the image that it belongs to. Deleted and
replaced paths stay so. The work is done on a copy, so that an interruption changes
nothing; the copy takes space for a while. Snapshots stay as they are. In an ext3 image
all files become yours, and its size is 10 GiB, or what the files need.

Another image takes --force, and the files are laid over it as they are: what was
changed in the old image covers the new one's files, what was deleted stays deleted,
and lists of installed packages are the old image's.
` + overlayExit,
		Example: `  berth overlay convert deps --driver ext3 --size 20GiB
  berth overlay convert deps --image new.sif --force`,
		Args: overlayArgs(1, "the name of one overlay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Driver == "" && c.Image == "" && size == "" {
				return usage("what is it to be? --driver DRIVER or --image SIF")
			}
			if c.Inodes < 0 {
				return usage("--inodes: it must be above 0")
			}
			if size != "" {
				var err error
				if c.Size, err = jobs.ParseBytes(size); err != nil {
					return usage("--size: %v", err)
				}
			}
			set, _, err := a.overlays()
			if err == nil {
				err = waited(cmd, set)
			}
			if err == nil {
				set.Auto, err = a.profileDriver(cmd)
			}
			if err != nil {
				return err
			}
			progress, end := a.gauge("converting " + args[0])
			i, err := set.Convert(cmd.Context(), args[0], c, progress)
			end()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"overlay": infoJSON(*i)})
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Driver, "driver", "", "new `DRIVER`: auto, kernel, fuse or ext3")
	f.StringVar(&size, "size", "", "`SIZE` of an ext3 image, such as 50GiB")
	f.Int64Var(&c.Inodes, "inodes", 0, "`NUMBER` of files that an ext3 image can hold (default one for 16 KiB)")
	f.StringVar(&c.Image, "image", "", "the new image that it belongs to, a `SIF` file")
	f.BoolVar(&c.Force, "force", false, "also for an image other than the one it was made on: the files may not fit")
	f.String("profile", "", "site profile, a `NAME` or the path of a file, whose driver auto means ($BERTH_PROFILE)")
	waitFlag(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// profileDriver is the driver that the profile names for new overlays.
func (a *app) profileDriver(cmd *cobra.Command) (string, error) {
	cfg, err := a.config(cmd)
	if err != nil {
		return "", err
	}
	p, err := cfg.ReadProfile()
	return p.Overlay, err
}
