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
		Use: "convert NAME [--driver DRIVER] [--image SIF]", Short: "have an overlay written by another driver, or belong to another image",
		Long: `Have an overlay written by another driver from now on, or belong to another image.
Deleted and replaced paths stay so. It works on a copy, so that a kill changes nothing;
the copy takes space for a while. Snapshots stay as they are. Into an ext3 image all
files go as yours, and it has 10 GiB, or what the files need.

Over another image, which takes --force, the files are laid as they are: what was
changed of the old image covers the new one's, what was deleted stays deleted, and
lists of installed packages are the old image's.
` + overlayExit,
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
			i, err := set.Convert(cmd.Context(), args[0], c, nil)
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
	f.StringVar(&c.Driver, "driver", "", "`DRIVER`: auto, kernel, fuse or ext3")
	f.StringVar(&size, "size", "", "`SIZE` of an ext3 image, such as 50GiB")
	f.Int64Var(&c.Inodes, "inodes", 0, "how many files an ext3 image can hold, a `NUMBER`")
	f.StringVar(&c.Image, "image", "", "the `SIF` that it is to belong to")
	f.BoolVar(&c.Force, "force", false, "another image than the one it was made over, too: the files need not fit")
	f.String("profile", "", "site `PROFILE`, whose driver auto is ($BERTH_PROFILE)")
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
