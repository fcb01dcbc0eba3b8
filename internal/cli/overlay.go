package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/config"
	"berth/internal/sys/purge"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"

	"github.com/spf13/cobra"
)

const overlayExit = exitHelp + `0 ok, 2 usage, 3 no such overlay or snapshot, 5 it could not be done, 75 the overlay
is in use, 78 it is damaged, or not made by berth, or not available here.`

func (a *app) overlayCmd() *cobra.Command {
	return group("overlay",
		`A named overlay keeps what jobs change in a container's files, for the next job
(overlay = "NAME" in a task, or berth run --overlay NAME). One job, or one of these
commands, uses it at a time. A snapshot is a copy that is kept beside it.`,
		`  berth overlay ls
  berth overlay create --size 50GiB deps     # or the first job makes it
  berth overlay snapshot deps --as good
  berth overlay restore deps good
  berth overlay rm deps`, a.overlayCreateCmd(),
		a.overlayLsCmd(), a.overlayShowCmd(), a.overlayRmCmd(), a.overlayCheckCmd(), a.overlayGrowCmd(), a.overlayConvertCmd(),
		a.overlaySnapshotCmd(), a.overlayRestoreCmd(), a.overlayForkCmd(), a.overlayDiffCmd(),
		a.overlayExportCmd(), a.overlayImportCmd(), a.overlayGcCmd())
}

// overlays is the set of the named ones. Nothing is made.
func (a *app) overlays() (*overlay.Set, *store.Store, error) {
	h, err := config.Home()
	if err != nil {
		return nil, nil, err
	}
	st, err := store.At(h)
	if err != nil {
		return nil, nil, err
	}
	return &overlay.Set{Dir: st.Overlays(), Templates: st.Templates(), On: run.Local{}, Say: a.say}, st, nil
}

// overlaysToWrite makes the state directory where it is missing.
func (a *app) overlaysToWrite() (*overlay.Set, error) {
	h, err := config.Home()
	if err != nil {
		return nil, err
	}
	if _, err := store.Open(h); err != nil {
		return nil, err
	}
	set, _, err := a.overlays()
	return set, err
}

func overlayArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs " + what, Hint: cmd.CommandPath() + " --help"}
		}
		return nil
	}
}

func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, "also when it seems to be in use: if a job still writes to it, files are lost")
}

// forever is the value of --wait that stands alone.
const forever = "forever"

func waitFlag(c *cobra.Command) {
	c.Flags().String("wait", "", "wait while it is in use, at most `TIME` (--wait=10m)")
	c.Flags().Lookup("wait").NoOptDefVal = forever
}

// waited puts what --wait says into a set.
func waited(cmd *cobra.Command, set *overlay.Set) error {
	f := cmd.Flags().Lookup("wait")
	switch {
	case f == nil || !f.Changed:
		return nil
	case f.Value.String() == forever:
		set.Wait = -1
		return nil
	}
	d, err := jobs.ParseDuration(f.Value.String())
	if err != nil {
		return usage("--wait: %v", err)
	}
	set.Wait = d
	return nil
}

// warnPurge says when old files are removed where overlays are.
func (a *app) warnPurge(cmd *cobra.Command, dir string) {
	var site []jobs.Purge
	if cfg, err := config.Load(configSources(cmd)); err == nil { // else others say so
		if p, err := cfg.ReadProfile(); err == nil {
			site = p.Purge
		}
	}
	if at, age := purge.Known(dir, site); at != "" {
		a.say("warning: overlays are in %s, where files unused for %s are removed; one of the driver ext3 is a single file", at, age)
	}
}

// overlayJSON is an overlay in every --json output. Fields are only ever added.
type overlayJSON struct {
	Name      string             `json:"name"`
	Dir       string             `json:"dir"`
	Mark      *overlay.Mark      `json:"mark,omitempty"`
	Holder    *overlay.Owner     `json:"holder,omitempty"`
	Snapshots []overlay.Snapshot `json:"snapshots"`
	Usage     *overlay.Usage     `json:"usage,omitempty"`
	Error     string             `json:"error,omitempty"`
}

func infoJSON(i overlay.Info) overlayJSON {
	j := overlayJSON{Name: i.Name, Dir: i.Dir, Mark: i.Mark, Holder: i.Holder, Snapshots: append([]overlay.Snapshot{}, i.Snapshots...)}
	if i.Err != nil {
		j.Error = i.Err.Error()
	}
	return j
}

func (a *app) overlayCreateCmd() *cobra.Command {
	var driver, size, image string
	var inodes int64
	c := &cobra.Command{
		Use: "create NAME", Short: "make an overlay",
		Long: `Make an overlay before a job does. Without --image it belongs to the first image that
it is used with. The driver auto is an ext3 image file where a size is given or the
state directory is on a network file system, else the profile's driver, else a
directory (fuse).
` + overlayExit,
		Example: `  berth overlay create deps
  berth overlay create --size 50GiB deps`,
		Args: overlayArgs(1, "the name of one overlay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := jobs.OverlaySpec{Name: args[0], Driver: driver, Inodes: inodes}
			if err := overlay.CheckName(spec.Name); err != nil {
				return err
			}
			if size != "" {
				var err error
				if spec.Size, err = jobs.ParseBytes(size); err != nil {
					return usage("--size: %v", err)
				}
			}
			if inodes < 0 {
				return usage("--inodes: it must be above 0")
			}
			set, err := a.overlaysToWrite()
			if err != nil {
				return err
			}
			if set.Auto, err = a.profileDriver(cmd); err != nil {
				return err
			}
			i, err := set.Create(cmd.Context(), spec, image)
			if err != nil {
				return err
			}
			a.warnPurge(cmd, i.Dir)
			if a.json {
				return a.printJSON(map[string]any{"overlay": infoJSON(*i)})
			}
			_, err = fmt.Fprintln(a.stdout, i.Name)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&driver, "driver", "auto", "`DRIVER` that writes it: auto, kernel, fuse or ext3")
	f.String("profile", "", "site profile, a `NAME` or the path of a file, whose driver auto means ($BERTH_PROFILE)")
	f.StringVar(&size, "size", "", "`SIZE` such as 50GiB: of an ext3 image, which is sparse (default 10GiB, at least 4MiB), or limit of a directory")
	f.Int64Var(&inodes, "inodes", 0, "`NUMBER` of files that an ext3 image can hold (default one for 16 KiB)")
	f.StringVar(&image, "image", "", "the image that it belongs to, a `SIF` file")
	a.jsonFlag(c)
	return c
}

func overlaySize(m *overlay.Mark) string {
	switch {
	case m == nil || m.Driver != jobs.DriverExt3 && m.Size == 0:
		return "-"
	case m.Size == 0:
		return overlay.DefaultSize.String()
	}
	return m.Size.String()
}

func (a *app) overlayRow(i overlay.Info) []string {
	row := []string{i.Name, "half made", "-", "-", "-", fmt.Sprint(len(i.Snapshots)), "-"}
	if i.Holder != nil {
		row[3] = overlay.By(*i.Holder)
	}
	switch {
	case i.Err != nil:
		row[1] = "unreadable"
	case i.Mark != nil:
		row[1], row[2], row[4], row[6] = i.Mark.Driver, overlaySize(i.Mark), dash(i.Mark.Image), a.when(i.Mark.Created)
	}
	return row
}

func (a *app) overlayLsCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ls", Short: "list overlays",
		Long: `List the named overlays; with --all also the layers that jobs have kept, as kept/ID,
and those of environments, as env/NAME, which are managed by berth env.
Columns: name, driver, size (ext3), who uses it, image, snapshots, made.
` + overlayExit,
		Example: `  berth overlay ls
  berth overlay ls --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, st, err := a.overlays()
			if err != nil {
				return err
			}
			list, err := set.List()
			if err != nil {
				return err
			}
			if all {
				envs, err := filepath.Glob(filepath.Join(st.Envs(), "[a-zA-Z0-9]*", "overlay"))
				if err != nil {
					return err
				}
				kept, err := set.ListKept()
				if err != nil {
					return err
				}
				list = append(list, kept...)
				for _, dir := range envs {
					list = append(list, overlay.Look("env/"+filepath.Base(filepath.Dir(dir)), dir))
				}
			}
			if len(list) > 0 {
				a.warnPurge(cmd, set.Dir)
			}
			rows, out := make([][]string, len(list)), make([]overlayJSON, len(list))
			for n, i := range list {
				rows[n], out[n] = a.overlayRow(i), infoJSON(i)
			}
			if a.json {
				return a.printJSON(map[string]any{"overlays": out})
			}
			if len(rows) == 0 && a.tty {
				a.say("no overlays; berth run --overlay NAME makes one")
				return nil
			}
			return a.table([]string{"NAME", "DRIVER", "SIZE", "IN USE BY", "IMAGE", "SNAPSHOTS", "MADE"}, rows)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also list the layers that jobs have kept, and those of environments")
	a.jsonFlag(c)
	return c
}

func (a *app) overlayShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "show one overlay in full",
		Long: `Show what an overlay is, its size on disk, who uses it, and its snapshots. Nothing is
opened: of an image that is in use the numbers are those of its last unmount.
` + overlayExit,
		Example: `  berth overlay show deps`,
		Args:    overlayArgs(1, "the name of one overlay"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, st, err := a.overlays()
			if err != nil {
				return err
			}
			var i *overlay.Info
			if env, ok := strings.CutPrefix(args[0], "env/"); ok && overlay.CheckName(env) == nil {
				o := overlay.Look(args[0], filepath.Join(st.EnvDir(env), "overlay"))
				if i, err = &o, o.Err; err == nil && o.Mark == nil {
					err = &jobs.Error{Kind: jobs.KindNotFound, Msg: "the environment " + env + " has no overlay",
						Hint: "berth overlay ls --all"}
				}
			} else {
				i, err = set.Get(args[0])
			}
			if err != nil {
				return err
			}
			a.warnPurge(cmd, i.Dir)
			j := infoJSON(*i)
			rows := [][2]string{{"name", i.Name}, {"directory", i.Dir}}
			add := func(k, v string) { rows = append(rows, [2]string{k, v}) }
			if m := i.Mark; m == nil {
				add("state", "half made")
			} else {
				u, uerr := i.Usage()
				if uerr != nil {
					j.Error = uerr.Error()
				} else {
					j.Usage = &u
				}
				add("driver", m.Driver)
				add("image", dash(m.Image))
				add("image id", dash(m.ImageID))
				add("made", a.when(m.Created))
				if k := m.Kept; k != nil {
					add("kept of", "job "+jobs.Short(k.Job)+" ("+string(k.State)+")")
				}
				switch {
				case uerr != nil:
					add("content", "unreadable: "+uerr.Error())
				case m.Driver == jobs.DriverExt3:
					add("size", u.Size.String())
					add("free", roundBytes(u.Free)+fmt.Sprintf(", %d of %d files", u.FreeInodes, u.Inodes))
					add("on disk", roundBytes(u.Disk))
				default:
					if m.Size != 0 {
						add("size", m.Size.String())
					}
					add("on disk", roundBytes(u.Disk))
				}
			}
			if i.Holder != nil {
				add("in use by", overlay.By(*i.Holder)+", since "+a.when(i.Holder.Time))
			}
			for _, s := range i.Snapshots {
				add("snapshot", s.Label+", made "+a.when(s.Made))
			}
			if a.json {
				return a.printJSON(map[string]any{"overlay": j})
			}
			return a.rows(rows)
		},
	}
	a.jsonFlag(c)
	return c
}

// roundBytes writes a measured amount in a unit that people read.
func roundBytes(n jobs.Bytes) string {
	switch {
	case n >= 10*jobs.GiB:
		return fmt.Sprintf("%.0f GiB", float64(n)/float64(jobs.GiB))
	case n >= jobs.GiB:
		return fmt.Sprintf("%.1f GiB", float64(n)/float64(jobs.GiB))
	case n >= jobs.MiB:
		return fmt.Sprintf("%.1f MiB", float64(n)/float64(jobs.MiB))
	}
	return fmt.Sprintf("%d KiB", n/jobs.KiB)
}

func (a *app) overlayRmCmd() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "rm NAME...", Short: "remove overlays with their snapshots",
		Long: `Remove overlays with their files and snapshots. One that is in use is refused.
` + overlayExit,
		Example: `  berth overlay rm deps`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return overlayArgs(1, "the name of an overlay")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			set, _, err := a.overlays()
			if err == nil {
				err = waited(cmd, set)
			}
			if err != nil {
				return err
			}
			return eachOf(cmd.Context(), names, func(n string) error {
				if _, err := set.Get(n); err != nil && (!force || jobs.KindOf(err) == jobs.KindNotFound || jobs.KindOf(err) == jobs.KindUsage) {
					return err
				}
				return set.Remove(cmd.Context(), n, force)
			})
		},
	}
	forceFlag(c, &force)
	waitFlag(c)
	return c
}

func (a *app) overlayGcCmd() *cobra.Command {
	var dry bool
	var older string
	c := &cobra.Command{
		Use: "gc", Short: "remove leftovers of overlays, and old kept layers",
		Long: `Remove what killed jobs and commands have left: half made copies, half removed and half
made overlays; and the layers that jobs have kept (kept/ID) when they are old. Overlays
and snapshots stay. An overlay that is in use is not touched.
` + overlayExit,
		Example: `  berth overlay gc --dry-run
  berth overlay gc --older 7d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, _, err := a.overlays()
			if err != nil {
				return err
			}
			if older != "" {
				if set.Older, err = age(older); err != nil {
					return usage("--older: %v", err)
				}
			}
			found, err := set.Collect(cmd.Context(), dry)
			rows, out := make([][]string, len(found)), make([]map[string]any, len(found))
			for n, l := range found {
				done := "removed"
				switch {
				case dry:
					done = "found"
				case l.Err != nil:
					done = "failed"
					err = errors.Join(err, l.Err)
				}
				rows[n], out[n] = []string{l.What, l.Path, done}, map[string]any{"found": l, "result": done}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"left": out}), err)
			}
			if len(rows) == 0 && a.errTTY && err == nil {
				a.say("nothing was left behind")
			}
			return errors.Join(a.table([]string{"WHAT", "PATH", "RESULT"}, rows), err)
		},
	}
	c.Flags().StringVar(&older, "older", "", "remove kept layers that are older than `TIME`, such as 36h or 7d (default 14d)")
	c.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	a.jsonFlag(c)
	return c
}

// age reads a duration, which may also be one of days; "0s" is any age.
func age(s string) (time.Duration, error) {
	if s == "0s" {
		return time.Nanosecond, nil
	}
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.Atoi(n)
		if err != nil || days < 1 || days > 36500 {
			return 0, fmt.Errorf("%q is not a number of days: write for example 7d", s)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return jobs.ParseDuration(s)
}

// onOverlay is a verb that does one thing to one overlay.
func (a *app) onOverlay(do func(ctx context.Context, set *overlay.Set, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, _, err := a.overlays()
		if err == nil {
			err = waited(cmd, set)
		}
		if err != nil {
			return err
		}
		return do(cmd.Context(), set, args)
	}
}
