package overlay

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// Space is what files take on the disk.
type Space struct {
	Bytes jobs.Bytes // in allocated blocks, directories and extended attributes' blocks too
	Files int64      // of any kind: inodes
}

// Over tells whether it is more than most; a 0 there is no limit.
func (s Space) Over(most Space) bool {
	return most.Bytes > 0 && s.Bytes > most.Bytes || most.Files > 0 && s.Files > most.Files
}

// maxDepth is how deep directories are measured: each level holds a descriptor.
const maxDepth = 400

// Measure adds up what stands below dir, which may be changing, until that is
// more than most, where it stops. Links are not followed. What cannot be read,
// such as a directory of mode 000, counts for itself alone.
func Measure(ctx context.Context, dir string, most Space) (Space, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Space{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	m := &measurer{most: most, linked: map[[2]uint64]bool{}}
	err = m.in(ctx, os.NewFile(uintptr(fd), dir), 0)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return m.sum, err
}

type measurer struct {
	sum, most Space
	linked    map[[2]uint64]bool // files with several names that have been counted
}

var errEnough = errors.New("more than was asked for")

func (m *measurer) in(ctx context.Context, d *os.File, depth int) error {
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if err := m.add(ctx, d, name, depth); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() == nil {
				return nil // a directory that is going away
			}
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (m *measurer) add(ctx context.Context, d *os.File, name string, depth int) error {
	var st unix.Stat_t
	if unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // it has just been removed
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		id := [2]uint64{uint64(st.Dev), st.Ino} //nolint:unconvert // other types elsewhere
		if m.linked[id] {
			return nil
		}
		m.linked[id] = true
	}
	m.sum.Files++
	m.sum.Bytes += jobs.Bytes(st.Blocks * 512)
	if m.sum.Over(m.most) {
		return errEnough
	}
	if !isDir || depth >= maxDepth {
		return nil
	}
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return m.in(ctx, os.NewFile(uintptr(fd), filepath.Join(d.Name(), name)), depth+1)
}

// layerSpace is what a layer takes, measured until it is more than most.
func layerSpace(ctx context.Context, driver, layer string, most Space) (Space, error) {
	if driver != jobs.DriverExt3 {
		return Measure(ctx, filepath.Join(layer, "upper"), most)
	}
	u, err := ext3Usage(layer)
	return Space{Bytes: u.Disk, Files: 1}, err
}

// Free is how much this user may still write to the file system of dir.
func Free(dir string) (jobs.Bytes, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return jobs.Bytes(uint64(st.Bavail) * uint64(st.Bsize)), nil //nolint:unconvert // other types elsewhere
}

// Space is what the layer takes, measured until it is more than most.
func (l *Layer) Space(ctx context.Context, most Space) (Space, error) {
	return layerSpace(ctx, l.driver, l.Path, most)
}

// How often a layer is measured: at first every second, and never more than a
// twentieth of the time.
const (
	watchSpace = time.Second
	watchShare = 20
	watchMost  = time.Minute
)

// WatchSpace has look measure again and again, until that tells that it is enough.
func WatchSpace(ctx context.Context, look func(context.Context) (enough bool)) {
	for {
		began := time.Now()
		if look(ctx) {
			return
		}
		pause := min(max(watchSpace, watchShare*time.Since(began)), watchMost)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
