package apptainer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// Used is an image in use on this machine.
type Used struct {
	jobs.ImageUse
	copy io.Closer // nil when nothing notes the use
}

// Close ends the use.
func (u *Used) Close() error {
	if u == nil || u.copy == nil {
		return nil
	}
	return u.copy.Close()
}

// Runs is what is about to run from an image, by which it is decided whether a
// copy on the node's own disk pays for itself.
type Runs struct {
	Stage       string        // [jobs.StageAuto] and so on; "" is auto
	Driver      string        // of the overlay
	Environment bool          // it is not a job
	Tasks       int           // of the job
	Time        time.Duration // limit of the job; 0 is not known
}

// Stager has images on this machine's own disk.
type Stager struct {
	Home    string // the state directory
	Scratch string // where the user wants it, as in a profile; "" is chosen
	Owner   string // directory of the attempt or the environment
	Program string // of the container
	On      jobs.Starter
	// Progress is told what takes a while; never nil. Meter is told how far that is, see
	// [jobs.OpenPlace]; it may be nil.
	Progress func(string)
	Meter    func(what string, done, of int64)
}

// stager has the images of an environment on this machine.
func (o *opener) stager() Stager {
	return Stager{Home: o.spec.Home, Scratch: o.spec.Scratch, Owner: o.at.Dir, Program: o.program, On: o.at.On, Progress: o.at.Progress, Meter: o.at.Meter}
}

// stage has an image where it is best run from with a driver.
func (o *opener) stage(ctx context.Context, img image, driver string) (*Used, error) {
	runs := o.runs
	runs.Driver = driver
	return o.stager().Stage(ctx, img.path, img.sum, runs)
}

// removeTree removes what a container or a build has left.
func removeTree(dir string) error {
	err := disk.RemoveTree(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sumOf is the SHA-256 of a file in the cache of a state directory, by its name,
// or "".
func sumOf(home, path string) string {
	c := images.Cache{Dir: images.Dir(home)}
	i := strings.LastIndexByte(path, '/')
	if sum, ok := strings.CutSuffix(path[i+1:], ".sif"); ok && len(sum) == 64 && c.Path(sum) == path {
		return sum
	}
	return ""
}
