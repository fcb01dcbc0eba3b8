package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/images"
	"berth/internal/images/fetch"
	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const imageExit = exitHelp + `0 ok, 2 usage, 3 no such image, 4 the registry wants a login, 5 the
registry, the network or the disk failed, 75 the registry wants fewer requests,
78 the image is damaged, or there is no apptainer.`

func (a *app) imageCmd() *cobra.Command {
	c := group("image",
		`Images are fetched once for all machines that see the state directory, and kept by their
content. Jobs and environments that name a reference fetch it by themselves; these commands
do it beforehand, and manage the cache.`,
		`  berth image pull docker://debian:12
  berth image ls
  berth image build tools.def
  berth image verify --all
  berth image gc --dry-run`, a.imagePullCmd(), a.imageLsCmd(), a.imageShowCmd(), a.imageVerifyCmd(), a.imageRmCmd(), a.imageGcCmd())
	for _, verb := range c.Commands() {
		if verb.Flags().Lookup("profile") != nil {
			continue
		}
		verb.Flags().String("profile", "", "site profile, which may name another cache and a proxy: a `NAME` or the path of a file ($BERTH_PROFILE)")
	}
	c.AddCommand(a.imageBuildCmd()) // it has the flags of a job
	return c
}

// imageJSON is an image in every --json output. Fields are only ever added.
type imageJSON struct {
	images.Image
	Path     string            `json:"path"`
	Used     time.Time         `json:"used"`
	Names    []images.Resolved `json:"references"`
	Recorded bool              `json:"recorded"`
	Shared   bool              `json:"shared,omitempty"` // it is in another user's cache
	InUse    string            `json:"in_use,omitempty"` // by what
}

func asJSON(img images.Image, use map[string]string) imageJSON {
	return imageJSON{Image: img, Path: img.Path, Used: img.Used, Names: img.Names, Recorded: img.Recorded, Shared: img.Shared, InUse: use[img.Sum]}
}

func someImages(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs an image: a reference, or the beginning of its SHA-256",
			Hint: "berth image ls"}
	}
	return nil
}

func (a *app) imagePullCmd() *cobra.Command {
	var f taskFlags
	var inJob bool
	c := &cobra.Command{
		Use: "pull REFERENCE...", Short: "fetch images into the cache; prints their paths",
		Long: `Fetch images into the cache, and print the paths of the files. An image that is there
already is not fetched again; of several who ask at once, on any machine, one fetches.

References:
  docker://debian:12, docker://ghcr.io/org/tool@sha256:...   an image of a registry
  oras://ghcr.io/org/image.sif:1                             a SIF in a registry
  library://org/collection/image:1                           a SIF in a library
  docker-archive:/path/saved.tar                             what docker save wrote

A login is taken from APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, or
from the file that DOCKER_CONFIG, REGISTRY_AUTH_FILE or APPTAINER_AUTHFILE leads to;
a proxy from https_proxy, or from a profile.

With --in-job a job without a container fetches on its node. References are still
resolved to a digest here, where that is possible; else the job resolves them.
` + imageExit,
		Example: `  berth image pull docker://debian:12
  berth image pull --in-job --partition transfer --time 1h docker://debian:12`,
		Args: someImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.cacheEngine(cmd)
			if err != nil {
				return err
			}
			e.Images.Offline = a.cfg.Offline()
			var refs []string
			for _, word := range args {
				ref, err := images.Settle(word)
				if err != nil {
					return err
				}
				if !images.IsReference(ref) {
					return &jobs.Error{Kind: jobs.KindUsage, Msg: ref + " is a file: it is used where it is",
						Hint: "name a reference such as docker://debian:12"}
				}
				refs = append(refs, ref)
			}
			out := make([]imageJSON, 0, len(refs))
			show := func(img images.Image) error {
				out = append(out, asJSON(img, nil))
				if a.json {
					return nil
				}
				_, err := fmt.Fprintln(a.stdout, jobs.Printable(img.Path))
				return err
			}
			if !inJob {
				for _, name := range []string{"cpus", "memory", "time", "partition", "account", "qos", "constraint", "slurm", "scheduler"} {
					if cmd.Flags().Changed(name) {
						return usage("--%s is of a job: give --in-job, too", name)
					}
				}
			}
			if inJob {
				if e.Images.Offline {
					return usage("--in-job fetches, and --offline says not to")
				}
				list, err := a.pullInJob(cmd, &f, e, refs)
				if err != nil {
					return err
				}
				for _, img := range list {
					if err := show(img); err != nil {
						return err
					}
				}
			} else {
				for _, ref := range refs {
					img, err := e.Images.Get(cmd.Context(), ref)
					if err == nil {
						err = show(img)
					}
					if err != nil {
						return err
					}
				}
			}
			if a.json {
				return a.printJSON(map[string]any{"images": out})
			}
			return nil
		},
	}
	f.addPlace(c)
	c.Flags().BoolVar(&inJob, "in-job", false, "fetch in a short job on a node, for sites whose login nodes may not do it; the flags of a job go with it")
	c.Flags().Bool("offline", false, "contact no registry: only say what is in the cache ($BERTH_OFFLINE)")
	a.jsonFlag(c)
	return c
}

func (a *app) imageLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the images in the cache",
		Long: `List the images in the cache, the last used first. Columns: the beginning of the
SHA-256, size, last use, what uses it, the references that it was last found under.
` + imageExit,
		Example: `  berth image ls`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, use, uerr := a.imagesInUse(cmd)
			if e == nil {
				return uerr
			}
			list, err := e.Images.List()
			err = errors.Join(err, uerr)
			out := make([]imageJSON, len(list))
			rows := make([][]string, len(list))
			for i, img := range list {
				out[i] = asJSON(img, use)
				rows[i] = []string{img.Sum[:12], roundBytes(jobs.Bytes(img.Size)),
					a.when(img.Used), dash(usedBy(img, use)), dash(references(img))}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"images": out}), err)
			}
			if len(rows) == 0 && a.tty && err == nil {
				a.say("no images; berth image pull docker://debian:12 fetches one")
				return nil
			}
			return errors.Join(a.table([]string{"IMAGE", "SIZE", "USED", "USED BY", "REFERENCES"}, rows), err)
		},
	}
	a.jsonFlag(c)
	return c
}

// usedBy says who needs an image, or that it is not for this user to remove.
func usedBy(img images.Image, use map[string]string) string {
	if img.Shared {
		return "(shared)"
	}
	return use[img.Sum]
}

func references(img images.Image) string {
	var names []string
	for _, r := range img.Names {
		names = append(names, r.Reference)
	}
	return strings.Join(names, " ")
}

// cached is an engine with the cache of images that it uses.
type cached struct {
	*engine.Engine
	Images *images.Cache
}

// cacheEngine opens both, as the profile says.
func (a *app) cacheEngine(cmd *cobra.Command) (*cached, error) {
	if _, err := a.config(cmd); err != nil {
		return nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	c, err := a.cache(e.Store.Home())
	return &cached{e, c}, err
}

// cache is that of a state directory.
func (a *app) cache(home string) (*images.Cache, error) {
	p, err := a.profile()
	if err != nil {
		return nil, err
	}
	return fetch.Cache(home, run.Local{}, fetch.Options{Progress: a.progress, Profile: p, Meter: func(m images.Meter) { a.meter(m.What, m.Done, m.Of) }})
}

func (a *app) imagesInUse(cmd *cobra.Command) (*cached, map[string]string, error) {
	e, err := a.cacheEngine(cmd)
	if err != nil {
		return nil, nil, err
	}
	use, err := e.ImagesInUse()
	return e, use, err
}

func (a *app) imageShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show IMAGE", Short: "show one image of the cache in full",
		Long: `Show what the cache knows of an image. It is named by a reference, a digest, or at least
8 characters of its SHA-256.
` + imageExit,
		Example: `  berth image show docker://debian:12`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return someImages(cmd, nil)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, use, err := a.imagesInUse(cmd)
			if e == nil {
				return err
			}
			if err != nil {
				a.say("warning: what uses images is not all known: %v", err)
			}
			img, err := e.Images.Find(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"image": asJSON(img, use)})
			}
			rows := [][2]string{
				{"sha256", img.Sum},
				{"file", img.Path},
				{"size", roundBytes(jobs.Bytes(img.Size))},
				{"id", img.ID},
				{"first fetched as", dash(img.Reference)},
				{"digest", dash(img.Digest)},
				{"made", a.when(img.Created)},
				{"on", dash(img.Host)},
				{"definition", dash(definition(e.Images, img))},
				{"%post as", dash(img.Fakeroot)},
				{"used", a.when(img.Used)},
				{"used by", dash(use[img.Sum])},
			}
			for _, r := range img.Names {
				rows = append(rows, [2]string{"reference", r.Reference + " " + r.Digest + " (" + a.when(r.Time) + ")"})
			}
			return a.rows(rows)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) imageVerifyCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "verify IMAGE... | verify --all", Short: "read images and compare them with their SHA-256",
		Long: `Read images of the cache from the first to the last byte, compare them with their
SHA-256, and print a line for each. Of an image that is a file of yours there is nothing
to compare with: it is a whole image, and its SHA-256 is printed.
` + imageExit,
		Example: `  berth image verify docker://debian:12
  berth image verify py.sif
  berth image verify --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !all {
				if err := someImages(cmd, args); err != nil {
					return err
				}
			} else if len(args) > 0 {
				return usage("name images, or give --all")
			}
			e, err := a.cacheEngine(cmd)
			if err != nil {
				return err
			}
			var list []images.Image
			if all {
				if list, err = e.Images.List(); err != nil && jobs.KindOf(err) != jobs.KindConfig {
					return err
				}
			}
			for _, word := range args {
				img, ferr := e.Images.Find(word)
				if ferr != nil && isFile(word) {
					img, ferr = images.Image{Path: word}, nil
				}
				if ferr != nil {
					return ferr
				}
				list = append(list, img)
			}
			bad := err
			rows := make([][]string, len(list))
			out := make([]map[string]any, len(list))
			for i, img := range list {
				shown, said, verr := "", "ok", error(nil)
				if img.Sum == "" { // a file of the user's
					shown = img.Path
					if _, verr = images.Whole(img.Path); verr == nil {
						img.Sum, verr = images.Sum(cmd.Context(), img.Path)
						said += ": a whole image, SHA-256 " + img.Sum
					}
				} else {
					shown = img.Sum[:12]
					verr = e.Images.Verify(cmd.Context(), img)
				}
				if cmd.Context().Err() != nil {
					return cmd.Context().Err()
				}
				if verr != nil {
					said = verr.Error()
					bad = errors.Join(bad, verr)
				}
				rows[i] = []string{shown, said}
				out[i] = map[string]any{"sum": img.Sum, "ok": verr == nil, "said": said}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"verified": out}), bad)
			}
			return errors.Join(a.table([]string{"IMAGE", "RESULT"}, rows), bad)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "verify all images of the cache")
	a.jsonFlag(c)
	return c
}

func (a *app) imageRmCmd() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "rm IMAGE...", Short: "remove images from the cache",
		Long: `Remove images from the cache. One that a job, a sweep, an environment or an overlay
needs is refused, and so is one that berth has no record of. A damaged image is named by
its SHA-256.
` + imageExit,
		Example: `  berth image rm docker://debian:12`,
		Args:    someImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, use, err := a.imagesInUse(cmd)
			if err != nil {
				return err
			}
			return eachOf(cmd.Context(), args, func(word string) error {
				img, err := e.Images.Find(word)
				if err != nil {
					if img, err = broken(e.Images, word, err); err != nil {
						return err
					}
				}
				if who := use[img.Sum]; who != "" && img.ID != "" {
					return &jobs.Error{Kind: jobs.KindUsage, Msg: "image " + img.Sum[:12] + " is used by " + who,
						Hint: "remove that first, or wait for its end"}
				}
				if dry {
					a.say("would remove %s", img.Path)
					return nil
				}
				return e.Images.Remove(img)
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	return c
}

// broken finds a damaged image by its SHA-256; err is why it is not found among
// the others.
func broken(c *images.Cache, word string, err error) (images.Image, error) {
	for _, img := range c.Broken() {
		if len(word) >= 8 && strings.HasPrefix(img.Sum, strings.TrimPrefix(word, "sha256:")) {
			return img, nil
		}
	}
	return images.Image{}, err
}

func (a *app) imageGcCmd() *cobra.Command {
	var dry bool
	older, unused := "", 30*24*time.Hour
	c := &cobra.Command{
		Use: "gc", Short: "remove images that were not used for long",
		Long: `Remove images of the cache that no job, sweep, environment or overlay needs and that were
not used for a while, and what killed processes have left half fetched. What berth has no
record of stays.
` + imageExit,
		Example: `  berth image gc --dry-run
  berth image gc --older 7d`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if older != "" {
				var err error
				if unused, err = age(older); err != nil {
					return usage("--older: %v", err)
				}
			}
			e, use, err := a.imagesInUse(cmd)
			if err != nil {
				return err
			}
			list, bad := e.Images.List()
			rows, out := [][]string{}, []map[string]any{}
			row := func(what, path, size string, err error) {
				done := "removed"
				switch {
				case dry:
					done = "found"
				case err != nil:
					done = "failed: " + err.Error()
					bad = errors.Join(bad, err)
				}
				rows = append(rows, []string{what, path, size, done})
				out = append(out, map[string]any{"what": what, "path": path, "result": done})
			}
			for _, img := range list {
				if cmd.Context().Err() != nil {
					return context.Cause(cmd.Context())
				}
				if use[img.Sum] != "" || !img.Recorded || img.Shared || a.now().Sub(img.Used) < unused {
					continue
				}
				var err error
				if !dry {
					err = e.Images.Remove(img)
				}
				row("image", img.Path, roundBytes(jobs.Bytes(img.Size)), err)
			}
			for _, path := range e.Images.Sweep(dry) {
				row("left over", path, "-", nil)
			}
			for _, path := range images.SweepFormer(images.Dir(e.Store.Home()), func(p string) bool { return use[p] != "" }, unused, dry) {
				row("former", path, "-", nil)
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"removed": out}), bad)
			}
			if len(rows) == 0 && a.errTTY && bad == nil {
				a.say("nothing to remove")
			}
			return errors.Join(a.table([]string{"WHAT", "PATH", "SIZE", "RESULT"}, rows), bad)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	c.Flags().StringVar(&older, "older", "", "remove images that were not used for `TIME`, such as 36h or 7d (default 30d)")
	a.jsonFlag(c)
	return c
}
