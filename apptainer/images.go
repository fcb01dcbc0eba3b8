package apptainer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/images"
	"berth/jobs"
	"berth/overlay"
)

// image is the read-only part of an environment on this machine.
type image struct {
	given string // as it was asked for
	path  string // of a SIF, or of a directory
	id    string // [overlay.ImageID] or [overlay.DirID]
	dir   bool   // it is an unpacked image
	sum   string // SHA-256 of a SIF in the cache, else ""
}

// findImage has the image on this machine; a reference is converted the first
// time.
func (o *opener) findImage(ctx context.Context) (image, error) {
	ref, err := images.Settle(o.spec.Image)
	if err != nil {
		return image{}, err
	}
	if !filepath.IsAbs(ref) {
		return o.fetched(ctx, ref)
	}
	img := image{given: o.spec.Image, path: ref}
	fi, err := os.Stat(ref)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return image{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + ref + " does not exist on " + images.Hostname(),
			Hint: "name one that does, or a reference such as docker://debian:12"}
	case err != nil:
		return image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "look at image " + ref, Err: err}
	case fi.IsDir():
		img.dir = true
		img.id, err = overlay.DirID(ref)
	default:
		img.id, err = overlay.ImageID(ref)
	}
	if err != nil {
		return image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the image", Err: err, Hint: jobs.HintOf(err)}
	}
	return img, nil
}

// fetched has the image of a reference from the cache of the state directory;
// it is fetched the first time, and found by the reference from then on,
// whatever the registry has under that name by now. The files of an environment
// go on with the image that they began with.
func (o *opener) fetched(ctx context.Context, ref string) (image, error) {
	if m, err := overlay.ReadMark(filepath.Join(o.at.Dir, dirOverlay)); err == nil && m != nil && o.spec.Persistent {
		if id, err := overlay.ImageID(m.Image); err == nil && id == m.ImageID {
			return image{given: o.spec.Image, path: m.Image, id: id, sum: sumOf(o.spec.Home, m.Image)}, nil
		}
	}
	c := NewCache(o.spec.Home, o.at.On, o.at.Progress)
	if err := c.Use(o.spec.Profile); err != nil {
		return image{}, err
	}
	got, err := c.Known(ref)
	if err != nil {
		if got, err = c.Get(ctx, ref); err != nil {
			return image{}, err
		}
	}
	return image{given: o.spec.Image, path: got.Path, id: got.ID, sum: got.Sum}, images.Pin(o.at.Dir, got)
}

// NewCache is the cache of images in a state directory, filled by the container
// program of this machine.
func NewCache(home string, on jobs.Starter, progress func(string)) *images.Cache {
	return &images.Cache{
		Dir: images.Dir(home), On: on, Progress: progress, Getenv: os.Getenv,
		Program: func() (string, error) { return FindProgram(os.Getenv("PATH")) },
		Environ: func() []string { return Environ(os.Getenv, "") }, Tool: ImageTool,
	}
}

// prefixNew begins the name of what is being made.
const prefixNew = ".new-"

// sweepOld removes what was being made a day ago and is not made any more.
func sweepOld(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(fi.ModTime()) > 24*time.Hour {
			_ = removeTree(filepath.Join(dir, e.Name()))
		}
	}
}

// buildEnviron is the environment of "apptainer build" for unpacking. Its cache
// and its temporary files go to scratch, which is a directory on this machine: a home directory may have no room for
// them.
func buildEnviron(scratch string) (env []string, drop func(), err error) {
	dir := filepath.Join(scratch, "build")
	for _, d := range []string{"cache", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory to unpack an image in", Err: err}
		}
	}
	work := images.Work{Cache: filepath.Join(dir, "cache"), Temp: filepath.Join(dir, "tmp"), Config: filepath.Join(dir, "config")}
	env = append(Environ(os.Getenv, ""), workVariables("", work)...)
	return env, func() { _ = removeTree(dir) }, nil
}
