package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"berth/apptainer"
	"berth/internal/config"
	"berth/jobs"
	"berth/overlay"

	"github.com/spf13/cobra"
)

// Formats of an export.
const (
	formatTar = "tar"
	formatSIF = "sif"
)

// exportFormat is the format that was named, else the one that a file's name
// says. Earlier versions wrote patches, too: a script that asks for one is not
// given a tar under that name.
func exportFormat(named, file string) (string, error) {
	ext := filepath.Ext(file)
	switch {
	case named == formatTar || named == formatSIF:
		return named, nil
	case named == "patch" || named == "" && (ext == ".patch" || ext == ".diff"):
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "an overlay is exported as a tar or as a sif, not as a patch",
			Hint: "berth overlay diff NAME lists what it has changed; berth overlay export NAME FILE.tar has the files"}
	case named != "":
		return "", usage("--format %s: it is tar or sif", named)
	case ext == ".sif":
		return formatSIF, nil
	}
	return formatTar, nil
}

func (a *app) overlayExportCmd() *cobra.Command {
	var format string
	var force bool
	c := &cobra.Command{
		Use: "export NAME FILE", Short: "write an overlay to a tar or a new image",
		Long: `Write what an overlay has changed to a file; - is standard output. The end of the file's
name, or --format, says the format:

  .tar    all files, with extended attributes, hard links and holes; a deleted path
          is a character device 0:0. berth overlay import reads it.
  .sif    a new image, of the overlay's image and its changes. It needs a directory
          on a disk of this machine ($TMPDIR, else /tmp) for a while, with room for
          twice the unpacked image, and is not put into the cache: name it by its
          path.

An overlay that is in use is read from its last snapshot.
` + overlayExit,
		Example: `  berth overlay export deps deps.sif
  berth overlay export deps deps.tar
  berth overlay export deps - | tar -t`,
		Args: overlayArgs(2, "an overlay and the name of a file"),
		RunE: a.onOverlay(func(ctx context.Context, set *overlay.Set, args []string) error {
			name, to := args[0], args[1]
			if _, err := set.Get(name); err != nil {
				if _, is := set.Get(to); is == nil {
					return swapped(name, to, "berth overlay export "+to+" "+name)
				}
			}
			f, err := exportFormat(format, to)
			switch {
			case err != nil:
				return err
			case to == "-" && f == formatSIF:
				return usage("an image cannot be written to standard output: name a file")
			case to == "-" && f == formatTar && a.tty:
				return usage("a tar is nothing for a terminal: name a file")
			}
			if to == "-" {
				return a.exportTar(ctx, set, name, a.stdout)
			}
			if to, err = filepath.Abs(to); err != nil {
				return err
			}
			if f == formatSIF {
				h, err := config.Home()
				if err != nil {
					return err
				}
				cache, err := a.cache(h)
				if err != nil {
					return err
				}
				return apptainer.Squash(ctx, set, cache, name, to, force)
			}
			return writeFile(to, force, func(w io.Writer) error { return a.exportTar(ctx, set, name, w) })
		}),
	}
	fs := c.Flags()
	fs.StringVar(&format, "format", "", "`FORMAT` of the file: tar or sif (default: the end of its name, else tar)")
	fs.BoolVar(&force, "force", false, "replace a file that exists")
	waitFlag(c)
	return c
}

// swapped is that of two arguments in the wrong order.
func swapped(file, name, right string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: file + " is a file, and " + name + " the name of an overlay: swap them", Hint: right}
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// writeFile writes a file that appears when it is complete.
func writeFile(to string, force bool, write func(io.Writer) error) error {
	if err := overlay.MayWrite(to, force); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), overlay.PrefixExport+"*")
	if err != nil {
		return overlay.WriteError(to, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return overlay.WriteError(to, err)
	}
	return overlay.Place(f.Name(), to, force)
}

func (a *app) exportTar(ctx context.Context, set *overlay.Set, name string, w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<18)
	progress, end := a.gauge("exporting " + name)
	left, err := set.Export(ctx, name, b, progress)
	end()
	if left > 0 {
		a.say("left out: %s", jobs.Plural(left, "socket or device"))
	}
	if err == nil {
		err = b.Flush()
	}
	return err
}

func (a *app) overlayImportCmd() *cobra.Command {
	var driver, size, image string
	c := &cobra.Command{
		Use: "import FILE.tar NAME", Short: "make an overlay from a tar",
		Long: `Make an overlay from a tar that berth overlay export has written; - is standard input.
Driver, size and image are those of the exported one unless they are given. In a
directory, files keep the ids of --fakeroot; in an ext3 image, and from a tar that berth
has not written, all files become yours. A tar with absolute names, ".." or devices is
refused.
` + overlayExit,
		Example: `  berth overlay import deps.tar deps`,
		Args:    overlayArgs(2, "a tar and the name of the new overlay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := jobs.OverlaySpec{Name: args[1], Driver: driver}
			if err := overlay.CheckName(spec.Name); err != nil {
				if isFile(args[1]) && overlay.CheckName(args[0]) == nil {
					return swapped(args[1], args[0], "berth overlay import "+args[1]+" "+args[0])
				}
				return err
			}
			if size != "" {
				var err error
				if spec.Size, err = jobs.ParseBytes(size); err != nil {
					return usage("--size: %v", err)
				}
			}
			in := a.stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				switch {
				case err != nil && isFile(spec.Name):
					return swapped(spec.Name, args[0], "berth overlay import "+spec.Name+" "+args[0])
				case err != nil:
					return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no tar to import", Err: err}
				}
				defer f.Close()
				in = f
			}
			set, err := a.overlaysToWrite()
			if err != nil {
				return err
			}
			progress, end := a.gauge("importing " + spec.Name)
			i, err := set.Import(cmd.Context(), gauged(in, progress), spec, image)
			end()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"overlay": infoJSON(*i)})
			}
			_, err = fmt.Fprintln(a.stdout, i.Name)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&driver, "driver", "auto", "`DRIVER` that writes it: auto (as exported), kernel, fuse or ext3")
	f.StringVar(&size, "size", "", "`SIZE` of an ext3 image, such as 50GiB (default as exported)")
	f.StringVar(&image, "image", "", "the image that it belongs to, a `SIF` file (default as exported)")
	a.jsonFlag(c)
	return c
}
