package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// DefaultSize of an ext3 image when the task names no disk. It is sparse: a
// new one takes a few MiB.
const DefaultSize = 10 * jobs.GiB

// Layer is a writable layer that is ready to be mounted.
type Layer struct {
	Path  string // what stands for {overlay}
	Notes []string
	lease *Lease
	temp  string // removed on Close

	// Of a persistent one: its overlay's directory, its driver, where the
	// overlay's own layer stands, and the directory of the copy that an attempt
	// works on, see [Layer.Snapshot].
	dir, driver, own, work string
	on                     jobs.Starter
	limit                  Space // what its mark says of a directory
}

// Limit is how large a layer that is a directory may become, as it was made; 0
// is no limit. An image has its own.
func (l *Layer) Limit() Space { return l.limit }

// Temporary makes a throw-away layer below dir, which must be on real disk.
func Temporary(ctx context.Context, on jobs.Starter, dir string, spec jobs.OverlaySpec) (*Layer, error) {
	temp := filepath.Join(dir, "overlay")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, fmt.Errorf("make a throw-away overlay: %w", err)
	}
	path, err := makeLayer(ctx, on, temp, spec)
	if err != nil {
		_ = disk.RemoveTree(temp)
		return nil, err
	}
	return &Layer{Path: path, temp: temp, driver: spec.Driver}, nil
}

// Persistent opens the named overlay in dir for one owner, and makes it when
// it does not exist. One that was written by another driver, or over another
// image, is refused.
func Persistent(ctx context.Context, on jobs.Starter, dir string, spec jobs.OverlaySpec, img Image, me Owner, gone func(Owner) bool) (*Layer, error) {
	if err := CheckName(spec.Name); err != nil {
		return nil, err
	}
	var err error
	if img.ID, err = LowerID(img.Path); err != nil {
		return nil, err
	}
	if err := plainDir(dir, "overlay "+spec.Name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make overlay " + spec.Name, Err: err,
			Hint: "is there space left? df -h " + filepath.Dir(dir) + "; df -i " + filepath.Dir(dir)}
	}
	lease, err := Acquire(dir, me, gone)
	if err != nil {
		return nil, err
	}
	l, err := openLeased(ctx, on, dir, spec, img)
	if err != nil {
		_ = lease.Release()
		return nil, err
	}
	l.lease, l.dir, l.driver, l.own = lease, dir, spec.Driver, l.Path
	return l, nil
}

// ErrLost is in the chain of the error for a layer that its mark promises and
// that is not there any more.
var ErrLost = errors.New("its files are gone")

// Own opens the layer in dir for a caller that is the only one to use dir, and
// makes it when there is none.
// spec.Name is for people; what other driver or image the layer belongs to is
// refused as by [Persistent].
func Own(ctx context.Context, on jobs.Starter, dir string, spec jobs.OverlaySpec, img Image) (*Layer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make overlay " + spec.Name, Err: err,
			Hint: "is there space left? df -h " + filepath.Dir(dir)}
	}
	return openLeased(ctx, on, dir, spec, img)
}

// Discard removes the layer in dir with its mark.
func Discard(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileMark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return discard(dir)
}

func openLeased(ctx context.Context, on jobs.Starter, dir string, spec jobs.OverlaySpec, img Image) (*Layer, error) {
	m, err := ReadMark(dir)
	if err != nil {
		return nil, err
	}
	l := &Layer{}
	if spec.Driver != jobs.DriverExt3 {
		l.limit = Space{Bytes: spec.Size, Files: spec.Inodes}
		if m != nil {
			l.limit = Space{Bytes: m.Size, Files: m.Inodes}
		}
	}
	if m == nil {
		// No mark: whatever stands here is half made, by an owner that is gone.
		if err := lostMark(dir); err != nil {
			return nil, err
		}
		if err := discard(dir); err != nil {
			return nil, err
		}
		l.Path, err = makeLayer(ctx, on, dir, spec)
		if err != nil {
			return nil, err
		}
		b, err := json.MarshalIndent(Mark{
			Version:  markVersion,
			Name:     spec.Name,
			Driver:   spec.Driver,
			Size:     spec.Size,
			Inodes:   spec.Inodes,
			Image:    img.Path,
			ImageID:  img.ID,
			ImageSum: img.Sum,
			Created:  time.Now().UTC(),
		}, "", "  ")
		if err != nil {
			return nil, err
		}
		won, err := store.CreateOnce(filepath.Join(dir, fileMark), b)
		if err != nil {
			return nil, fmt.Errorf("mark overlay %s: %w", spec.Name, err)
		}
		if !won {
			return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "overlay " + spec.Name + " was made by another job at the same time",
				Hint: "try again"}
		}
		return l, nil
	}
	if err := m.CheckImage(spec.Name, img); err != nil {
		return nil, err
	}
	if m.Driver != spec.Driver {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("overlay %s was written by the driver %s, and this job asks for %s", spec.Name, m.Driver, spec.Driver),
			Hint: "submit again: the driver follows the overlay's mark; or change that: " +
				"berth overlay convert " + spec.Name + " --driver " + spec.Driver}
	}
	if m.bind(img) {
		if err := writeMark(dir, m); err != nil {
			return nil, fmt.Errorf("mark overlay %s: %w", spec.Name, err)
		}
	}
	freshen(dir)
	l.Path = layerPath(dir, m.Driver)
	if err := settleLayer(ctx, on, dir, m); err != nil {
		return nil, err
	}
	if err := clearAttempts(ctx, on, dir); err != nil {
		l.Notes = append(l.Notes, "overlay "+spec.Name+" still has what a killed attempt has left: "+err.Error())
	}
	if err := hasLayer(l.Path, m.Driver); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + spec.Name + " has lost its content", Err: fmt.Errorf("%w: %w", ErrLost, err),
			Hint: "berth overlay restore " + spec.Name + " LABEL, or start from the beginning: berth overlay rm " + spec.Name +
				"; some sites remove old files"}
	}
	if m.Driver == jobs.DriverExt3 {
		repaired, err := checkExt3(ctx, on, l.Path)
		if err != nil {
			return nil, err
		}
		if repaired {
			l.Notes = append(l.Notes, "overlay "+spec.Name+" had not been unmounted cleanly and was checked with e2fsck")
		}
	}
	return l, nil
}

// Stands tells whether the layer is still its opener's: no other process has
// taken over the lease of a persistent one.
func (l *Layer) Stands() bool { return l.lease == nil || l.lease.Stands() }

// Close ends the use of the layer: a throw-away one is removed, a persistent
// one is given back. Nothing may have it mounted any more. A copy stays where
// the overlay has no layer: a promotion was cut off in the middle then, and the
// next opener finishes it.
func (l *Layer) Close() error {
	if l.temp != "" {
		return run.RemoveFiles(context.Background(), run.Local{}, l.temp)
	}
	if l.lease == nil {
		return nil
	}
	var err error
	if l.work != "" && hasLayer(l.own, l.driver) != nil {
		err = fmt.Errorf("%s is kept: the overlay's own files are not in their place", l.work)
	} else if l.work != "" {
		err = removeAttempt(context.Background(), l.on, l.work)
	}
	return errors.Join(err, l.lease.Release())
}

func layerPath(dir, driver string) string {
	if driver == jobs.DriverExt3 {
		return filepath.Join(dir, fileImage)
	}
	return filepath.Join(dir, dirLayer)
}

// hasLayer looks for what a marked overlay must hold: the container program
// would make an empty one without a word.
func hasLayer(path, driver string) error {
	if driver != jobs.DriverExt3 {
		if err := plainDir(path, "the layer"); err != nil {
			return err
		}
		path = filepath.Join(path, "upper")
	}
	fi, err := os.Lstat(path) // a link was not made by berth
	if err == nil && (driver == jobs.DriverExt3 && !fi.Mode().IsRegular() || driver != jobs.DriverExt3 && !fi.IsDir()) {
		err = fmt.Errorf("%s is a %s", path, kindOf(fi))
	}
	return err
}

func makeLayer(ctx context.Context, on jobs.Starter, dir string, spec jobs.OverlaySpec) (string, error) {
	path := layerPath(dir, spec.Driver)
	switch spec.Driver {
	case jobs.DriverExt3:
		return path, makeExt3(ctx, on, path, spec)
	case jobs.DriverFuse, jobs.DriverKernel:
		return path, makeDirs(path)
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "this berth has no overlay driver " + spec.Driver}
}

// makeDirs makes the two directories of an empty layer. The upper one becomes
// the root directory inside, which others inside (a service user of a package)
// must be able to enter: by chmod, because berth's umask is strict.
func makeDirs(layer string) error {
	for _, d := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(layer, d), 0o700); err != nil {
			return err
		}
	}
	return os.Chmod(filepath.Join(layer, "upper"), 0o755)
}

// discard removes what a killed owner has left half made.
func discard(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch n := e.Name(); {
		case n == dirLayer, n == dirRestored,
			strings.HasPrefix(n, fileImage), strings.HasPrefix(n, prefixMkfs), strings.HasPrefix(n, prefixTemp),
			isAttempt(filepath.Join(dir, n)):
			if err := disk.RemoveTree(filepath.Join(dir, n)); err != nil {
				return err
			}
		}
	}
	// Last: it says that nothing of this was ever used.
	if err := os.Remove(filepath.Join(dir, fileBegun)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Before makes a throw-away layer below dir as an attempt has found the named
// overlay: a copy of the overlay's own layer, where the attempt works on another
// copy. What is changed in place is not there any more.
func Before(ctx context.Context, on jobs.Starter, l *Layer, dir string, spec jobs.OverlaySpec) (*Layer, error) {
	if l.work == "" {
		return nil, errors.New("the overlay " + spec.Name + " was changed in place")
	}
	return Copy(ctx, on, &Layer{Path: l.own}, dir, spec)
}

// Copy makes a throw-away copy of a layer that nothing has mounted. Only the
// upper directory is copied: work/work has mode 000, and means nothing.
func Copy(ctx context.Context, on jobs.Starter, from *Layer, dir string, spec jobs.OverlaySpec) (*Layer, error) {
	l, err := throwAwayCopy(ctx, on, spec.Driver, from.Path, filepath.Join(dir, "copy"))
	if err != nil {
		return nil, fmt.Errorf("copy overlay %s: %w", spec.Name, err)
	}
	return l, nil
}

// throwAwayCopy copies a layer into a new directory, which goes on [Layer.Close].
func throwAwayCopy(ctx context.Context, on jobs.Starter, driver, from, temp string) (*Layer, error) {
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	l := &Layer{Path: layerPath(temp, driver), temp: temp, driver: driver}
	err := copyLayer(ctx, on, driver, from, l.Path)
	if err == nil && driver == jobs.DriverExt3 {
		_, err = checkExt3(ctx, on, l.Path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
