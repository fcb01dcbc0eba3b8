package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Set are the named overlays of a state directory.
type Set struct {
	Dir       string // each is a directory in it
	Templates string // see [jobs.OverlaySpec]
	On        jobs.Starter
	Auto      string // the driver that "auto" is where directories can be layers; "" is fuse
	// Say is given messages for the user, one line each; nil drops them.
	Say func(format string, args ...any)
	// Wait is how long a verb waits for an overlay that is in use; 0 is not at
	// all, below 0 as long as it takes.
	Wait time.Duration
	// Older is how long a kept layer stays before [Set.Collect] removes it; 0 is
	// [KeptFor].
	Older time.Duration
	beat  time.Duration // between signs of life; 0 is [lease.BeatEvery]
}

// Names in the directory of an overlay and beside overlays.
const (
	dirSnapshots = "snapshots"
	dirRestored  = ".restored" // the layer of a snapshot, complete, before it takes its place
	prefixTemp   = ".making-"  // half made
	prefixGone   = ".gone-"    // half removed
)

// Info is what is known of an overlay without opening its layer.
type Info struct {
	Name      string
	Dir       string
	Mark      *Mark  // nil of one that is half made
	Holder    *Owner // who has its lease; it need not live any more
	Snapshots []Snapshot
	Err       error  // what could not be read
	lease     *Lease // of the caller, see [Set.held]
}

// Layer is where its layer stands.
func (i *Info) Layer() string { return layerPath(i.Dir, i.Mark.Driver) }

func (s *Set) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(format, args...)
	}
}

// List returns the overlays by name.
func (s *Set) List() ([]Info, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the overlays", Err: err}
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() || CheckName(e.Name()) != nil })
	out := make([]Info, len(entries))
	// A network file system answers several questions in the time of one.
	var all sync.WaitGroup
	for w := range lookers {
		all.Go(func() {
			for n := w; n < len(entries); n += lookers {
				out[n] = s.look(entries[n].Name())
			}
		})
	}
	all.Wait()
	return out, nil
}

const lookers = 8

func (s *Set) look(name string) Info {
	dir, err := s.at(name)
	if err != nil {
		return Info{Name: name, Err: err}
	}
	return Look(name, dir)
}

// Look tells what is known of the overlay in dir, which may also be that of an
// environment.
func Look(name, dir string) Info {
	i := Info{Name: name, Dir: dir}
	var err error
	if i.Mark, err = ReadMark(dir); err != nil {
		i.Err = err
		return i
	}
	if i.Holder, err = lease.Holder(dir); err != nil {
		i.Err = err
		return i
	}
	i.Snapshots, i.Err = listSnapshots(dir)
	return i
}

// Get returns one overlay, which must exist.
func (s *Set) Get(name string) (*Info, error) {
	dir, err := s.at(name)
	if err != nil {
		return nil, err
	}
	if filepath.Dir(dir) != s.Dir {
		if err := plainDir(filepath.Dir(dir), "kept layers"); err != nil {
			return nil, err
		}
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		hint := "berth overlay ls"
		if filepath.Dir(dir) != s.Dir {
			hint = "berth overlay ls --all; a layer without a name is kept only where " +
				"that was said at submit: berth run --keep-failed, berth retry JOB --keep"
		}
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no overlay " + name, Hint: hint}
	}
	if err := plainDir(dir, "overlay "+name); err != nil {
		return nil, err
	}
	i := s.look(name)
	return &i, i.Err
}

func kindOf(fi fs.FileInfo) string {
	switch fi.Mode().Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symbolic link"
	}
	return "special file"
}

// made is [Set.Get] for what needs a layer.
func (s *Set) made(name string) (*Info, error) {
	i, err := s.Get(name)
	if err == nil && i.Mark == nil {
		if err := lostMark(i.Dir); err != nil {
			return i, err
		}
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + name + " is half made",
			Hint: "the next job that uses it creates it again; or: berth overlay rm " + name}
	}
	return i, err
}

// Create makes an overlay that no job has used. Without an image it belongs to
// the first one that it is used with.
func (s *Set) Create(ctx context.Context, spec jobs.OverlaySpec, image string) (*Info, error) {
	dir, err := s.fresh(spec.Name)
	if err != nil {
		return nil, err
	}
	img, err := imageAt(image)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(img.ID, PrefixDir) { // fuse is not right over it
		switch spec.Driver {
		case jobs.DriverFuse:
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the overlay driver fuse is not right over an unpacked image",
				Hint: "say --driver kernel or --driver ext3, or name a SIF"}
		case "", "auto":
			if spec.Size == 0 && spec.Inodes == 0 && TakesDirectories(s.Dir) {
				spec.Driver = jobs.DriverKernel
			}
		}
	}
	if spec, err = s.settle(spec); err != nil {
		return nil, err
	}
	release, err := s.begin(ctx, dir, "create")
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := openLeased(ctx, s.On, dir, spec, img); err != nil {
		return nil, err
	}
	return s.done(spec.Name)
}

// done is an overlay as a verb that changed it leaves it.
func (s *Set) done(name string) (*Info, error) {
	i := s.look(name)
	i.Holder = nil // that was this call
	return &i, i.Err
}

// settle chooses the driver as a job would: auto is the one that the profile
// names, where it is available here.
func (s *Set) settle(spec jobs.OverlaySpec) (jobs.OverlaySpec, error) {
	spec.Templates = s.Templates
	sized := spec.Size != 0 || spec.Inodes != 0
	switch spec.Driver {
	case "", "auto":
		switch {
		case sized, !TakesDirectories(s.Dir):
			spec.Driver = jobs.DriverExt3
		case s.Auto != "":
			spec.Driver = s.Auto
		default:
			spec.Driver = jobs.DriverFuse
		}
	case jobs.DriverExt3:
	case jobs.DriverFuse, jobs.DriverKernel:
		if !TakesDirectories(s.Dir) {
			return spec, &jobs.Error{Kind: jobs.KindConfig,
				Msg:  s.Dir + " is on a network file system, where a directory cannot hold all changes to an image",
				Hint: "say --driver ext3"}
		}
	default:
		return spec, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("there is no overlay driver %q", spec.Driver),
			Hint: "auto, kernel, fuse or ext3"}
	}
	return spec, CheckSize(spec.Driver, spec.Size, spec.Inodes)
}

// fresh is the directory of an overlay that must not exist.
func (s *Set) fresh(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	dir := filepath.Join(s.Dir, name)
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	if err != nil {
		return "", err
	}
	i, err := s.Get(name)
	if err == nil && i.Mark == nil {
		return dir, nil
	}
	if err == nil {
		err = &jobs.Error{Kind: jobs.KindUsage, Msg: "there is an overlay " + name + " already", Hint: "berth overlay show " + name}
	}
	return "", err
}

// begin makes the directory of a new overlay and holds it. What has no mark when
// it is released came to nothing, and is removed.
func (s *Set) begin(ctx context.Context, dir, verb string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make overlay " + filepath.Base(dir), Err: err, Hint: "is there space left? df -h " + s.Dir}
	}
	release, err = s.hold(ctx, dir, verb, false)
	if err != nil {
		return nil, err
	}
	m, err := ReadMark(dir)
	if err == nil && m != nil {
		err = &jobs.Error{Kind: jobs.KindAgain, Msg: "overlay " + filepath.Base(dir) + " was made by another process at the same time",
			Hint: "berth overlay ls"}
	}
	if err == nil {
		err = lostMark(dir)
	}
	if err == nil {
		err = discard(dir)
	}
	begun := filepath.Join(dir, fileBegun)
	if err == nil {
		err = os.WriteFile(begun, nil, 0o600)
	}
	if err != nil {
		release()
		return nil, err
	}
	held := release
	return func() {
		_ = os.Remove(begun)
		gone := s.goneName(dir)
		m, err := ReadMark(dir)
		failed := err == nil && m == nil && onlyOurs(dir) == nil && os.Rename(dir, gone) == nil
		held()
		if failed {
			_ = run.RemoveFiles(context.WithoutCancel(ctx), s.On, gone) // else gc does
		}
	}, nil
}

// goneName is where the directory of an overlay goes that is removed:
// [Set.Collect] finds it there.
func (s *Set) goneName(dir string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s%s-%x", prefixGone, filepath.Base(dir), time.Now().UnixNano()))
}

// Remove deletes an overlay with its snapshots. What is not of berth's making
// stays, and is an error.
func (s *Set) Remove(ctx context.Context, name string, force bool) error {
	i, err := s.Get(name)
	if err != nil && (i == nil || !force) {
		return err
	}
	if err := onlyOurs(i.Dir); err != nil {
		return err
	}
	release, err := s.hold(ctx, i.Dir, "rm", force)
	if err != nil {
		return err
	}
	gone := s.goneName(i.Dir)
	if err := os.Rename(i.Dir, gone); err != nil {
		release()
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove overlay " + name, Err: err}
	}
	release() // of a directory that is gone: nothing is written
	if err := disk.SyncDir(filepath.Dir(i.Dir)); err != nil {
		return err
	}
	return run.RemoveFiles(ctx, s.On, gone)
}

// onlyOurs looks for what berth does not put into the directory of an overlay.
func onlyOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !ours(e.Name()) && !isAttempt(filepath.Join(dir, e.Name())) {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg:  fmt.Sprintf("%q is not of berth's making and would be removed", filepath.Join(dir, e.Name())),
				Hint: "move it elsewhere"}
		}
	}
	return nil
}

func ours(name string) bool {
	return slices.Contains([]string{fileMark, dirLayer, fileImage, dirSnapshots, dirRestored, "beat"}, name) ||
		strings.HasPrefix(name, "lease.") || strings.HasPrefix(name, prefixTemp) || strings.HasPrefix(name, prefixGone) ||
		strings.HasPrefix(name, prefixMkfs) || strings.HasPrefix(name, fileImage) ||
		strings.HasPrefix(name, ".new-") // a file of the lease that is being made
}

// writeMark replaces a mark. The caller has the lease.
func writeMark(dir string, m *Mark) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, fileMark), b, 0o600)
}
