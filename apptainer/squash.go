package apptainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// Squash makes one image of an overlay and the image that it belongs to: a SIF
// that has what a container with both shows, with labels, environment and
// runscript of the image. It works in a directory on this machine's own disk
// and puts the file in place when it is complete. A file that is there is
// replaced with force alone. c is asked for the container program and the
// place, and told how far it is; nothing goes into the cache.
func Squash(ctx context.Context, set *overlay.Set, c *images.Cache, name, to string, force bool) (err error) {
	if err := overlay.MayWrite(to, force); err != nil {
		return err
	}
	r, err := set.Read(ctx, name, "export")
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Mark.Image == "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + name + " belongs to no image yet, and an image is to be made of both",
			Hint: "export a tar: berth overlay export " + name + " " + name + ".tar"}
	}
	temp, err := os.MkdirTemp(filepath.Dir(to), overlay.PrefixExport+"*")
	if err != nil {
		return overlay.WriteError(to, err)
	}
	defer func() { err = errors.Join(err, disk.RemoveTree(temp)) }()
	made := filepath.Join(temp, "image.sif")
	if err := squashed(ctx, r, c, name, made); err != nil {
		return err
	}
	return place(made, to, force)
}

// Merged is the image that [Squash] makes, of the overlay that r reads and the image that it is used
// over, in the cache c. It is made once of what both are, and digest tells the overlay's files from others.
func Merged(ctx context.Context, r *overlay.Reading, c *images.Cache, name string, over overlay.Image) (img images.Image, digest string, err error) {
	if err := r.Over(over); err != nil {
		return img, "", err
	}
	if digest, err = r.Digest(ctx); err != nil {
		return img, "", err
	}
	img, err = c.Made(ctx, images.OverlayRef(name, over.ID, over.Sum, digest), func(ctx context.Context, path string) error {
		return squashed(ctx, r, c, name, path)
	})
	return img, digest, err
}

// squashed makes the image, in a directory that is there for that alone.
func squashed(ctx context.Context, r *overlay.Reading, c *images.Cache, name, made string) (err error) {
	program, err := c.Program()
	if err != nil {
		return err
	}
	unpacked, err := r.ImageSize(ctx)
	if err != nil {
		return err
	}
	temp := filepath.Dir(made)
	work, env, err := c.Workplace("export-"+temp[strings.LastIndexByte(temp, '-')+1:], temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.RemoveFiles(context.WithoutCancel(ctx), c.On, work)) }()
	q := &squash{on: c.On, program: program, env: env, c: c, root: filepath.Join(work, "w", "root"), made: made}
	q.can, q.all, _ = run.OwnFiles(ctx)
	if err := q.room(work, temp, r, unpacked); err != nil {
		return err
	}
	if err := q.unpack(ctx, r.Mark.Image); err != nil {
		return err
	}
	what := "taking the files of overlay " + name
	c.Progress(what)
	err = r.Apply(ctx, q.root, func(done, all int64) { q.meter(images.Meter{What: what, Done: min(done, all), Of: all}) })
	q.meter(images.Meter{})
	if err != nil {
		return fmt.Errorf("put the files of overlay %s over those of its image: %w", name, err)
	}
	if err := unplant(q.root); err != nil {
		return err
	}
	return q.pack(ctx)
}

type squash struct {
	on      jobs.Starter
	program string
	env     []string
	c       *images.Cache
	root    string // the unpacked image
	made    string // the new one
	can     bool   // there is a user namespace in which this user is root,
	all     bool   // with other ids in it
}

func (q *squash) meter(m images.Meter) {
	if q.c.Meter != nil {
		q.c.Meter(m)
	}
}

// room looks for the space that will be needed: the container program packs a
// copy of what was unpacked.
func (q *squash) room(work, temp string, r *overlay.Reading, unpacked int64) error {
	packed := int64(0)
	if fi, err := os.Stat(r.Mark.Image); err == nil && fi.Mode().IsRegular() {
		packed = fi.Size()
	}
	if unpacked == 0 {
		unpacked = 3 * packed
	}
	if packed == 0 {
		packed = unpacked / 2
	}
	for _, need := range []struct {
		dir   string
		bytes int64
	}{{work, 2 * (unpacked + r.Bytes)}, {filepath.Dir(temp), packed + r.Bytes/2}} {
		free, err := overlay.Free(need.dir)
		if err == nil && int64(free) < need.bytes {
			return &jobs.Error{Kind: jobs.KindInfra,
				Msg: fmt.Sprintf("about %s are needed on the disk of %s, and %s are free",
					jobs.Bytes(need.bytes>>20<<20), need.dir, jobs.Bytes(int64(free)>>20<<20)),
				Hint: "make room, or set TMPDIR to a directory on a larger disk of " + images.Hostname()}
		}
	}
	return nil
}

// unpack has the files of the image in a directory of their own: with their
// owners where there is a user namespace that has these.
func (q *squash) unpack(ctx context.Context, image string) error {
	q.c.Progress("unpacking " + image)
	argv := []string{q.program, "build", "--sandbox", q.root, image}
	if fi, err := os.Stat(image); err == nil && fi.IsDir() {
		argv = []string{"cp", "-a", "--reflink=auto", "--", image, q.root}
	}
	if err := q.run(ctx, argv, q.all); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "unpack " + image, Err: err, Hint: "is there space left? df -h " + filepath.Dir(q.root)}
	}
	return nil
}

// pack makes a SIF: as root of a user namespace where there is one, because
// what cannot be read would be missing in it.
func (q *squash) pack(ctx context.Context) error {
	q.c.Progress("making the image (it may take some minutes)")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(250 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-done:
				q.meter(images.Meter{})
				return
			case <-t.C:
			}
			if fi, err := os.Stat(q.made); err == nil {
				q.meter(images.Meter{What: "making the image", Done: fi.Size()})
			}
		}
	}()
	err := q.run(ctx, []string{q.program, "build", q.made, q.root}, q.can)
	close(done)
	<-ended
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "make an image of it", Err: err,
			Hint: "is there space left? df -h " + filepath.Dir(q.root) + " " + filepath.Dir(q.made)}
	}
	return nil
}

func (q *squash) run(ctx context.Context, argv []string, own bool) error {
	_, err := run.Output(ctx, q.on, jobs.Cmd{Argv: argv, Dir: "/", Env: q.env, OwnFiles: own})
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		return errors.New(images.LastLine(failed.Stderr))
	}
	return err
}

// place gives the new image its name, in one step.
func place(made, to string, force bool) error {
	if _, err := images.Whole(made); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "make an image of it", Err: err}
	}
	if err := disk.SyncFile(made); err != nil {
		return overlay.WriteError(to, err)
	}
	return overlay.Place(made, to, force)
}
