package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Check examines an overlay and repairs it. repaired says what was wrong and
// is right now; damage that cannot be repaired is an error.
func (s *Set) Check(ctx context.Context, name string, force bool) (repaired []string, err error) {
	said := s.Say
	quiet := *s
	quiet.Say = func(format string, args ...any) {
		repaired = append(repaired, fmt.Sprintf(format, args...))
	}
	if force {
		quiet.Say = said
	}
	i, release, err := quiet.held(ctx, name, "check", force)
	if err != nil {
		return nil, err
	}
	defer release()
	if i.Mark.Driver == jobs.DriverExt3 {
		was, err := fsck(ctx, s.On, i.Layer())
		if was {
			repaired = append(repaired, "e2fsck has repaired the image")
		}
		return repaired, err
	}
	return repaired, s.checkUpper(ctx, i)
}

// checkUpper looks for what another driver than the mark's has written: opened
// with this one, deleted files would come back.
func (s *Set) checkUpper(ctx context.Context, i *Info) error {
	const most = 5
	var bad []error
	t, err := s.readTree(ctx, i.Mark.Driver, i.Layer())
	if err != nil {
		return unreadable(i.Name, err)
	}
	for _, e := range t.list {
		foreign := ""
		switch {
		case e.opaqueBy == "overlay" && i.Mark.Driver == jobs.DriverFuse:
			foreign = jobs.DriverKernel
		case e.opaqueBy == "fuseoverlayfs" && i.Mark.Driver == jobs.DriverKernel:
			foreign = jobs.DriverFuse
		}
		if foreign != "" && len(bad) < most {
			bad = append(bad, fmt.Errorf("/%s was replaced by the driver %s", e.path, foreign))
		}
	}
	if len(bad) > 0 {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("overlay %s is marked %s and was also written by another driver: deleted files would come back",
				i.Name, i.Mark.Driver),
			Err:  errors.Join(bad...),
			Hint: "berth overlay restore " + i.Name + " LABEL, or start from the beginning: berth overlay rm " + i.Name}
	}
	return nil
}

// Grow makes an overlay that has a size larger. Of an image it works on a copy that takes the place
// of the image at the end, so that a kill changes nothing.
func (s *Set) Grow(ctx context.Context, name string, size jobs.Bytes, force bool) error {
	i, release, err := s.held(ctx, name, "grow", force)
	if err != nil {
		return err
	}
	defer release()
	if i.Mark.Driver != jobs.DriverExt3 {
		m := *i.Mark
		switch {
		case m.Size == 0:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "overlay " + name + " is a directory (driver " + m.Driver + "), and was given no size",
				Hint: "its space is that of the file system: df -h " + i.Dir}
		case size <= m.Size:
			return notMore(name, m.Size, size)
		}
		m.Size = size // that is all: a runner measures it
		return writeMark(i.Dir, &m)
	}
	img := i.Layer()
	fi, err := os.Stat(img)
	if err != nil {
		return err
	}
	if int64(size) <= fi.Size() {
		return notMore(name, jobs.Bytes(fi.Size()), size)
	}
	if err := CheckSize(jobs.DriverExt3, size, 0); err != nil {
		return err
	}
	resize2fs, err := tool("resize2fs")
	if err != nil {
		return err
	}
	tmp := img + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp) }()
	if err := copyLayer(ctx, s.On, jobs.DriverExt3, img, tmp); err != nil {
		return fmt.Errorf("grow overlay %s: %w", name, err)
	}
	if err := os.Truncate(tmp, int64(size)); err != nil {
		return fmt.Errorf("grow overlay %s: %w", name, err)
	}
	if _, err := fsck(ctx, s.On, tmp); err != nil {
		return err
	}
	if _, err := run.Output(ctx, s.On, jobs.Cmd{Argv: []string{resize2fs, tmp}}); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("grow overlay %s to %s", name, size), Err: err,
			Hint: "it is as it was; is there space left? df -h " + i.Dir}
	}
	if err := disk.SyncFile(tmp); err != nil {
		return fmt.Errorf("grow overlay %s: %w", name, err)
	}
	if err := i.stands(); err != nil {
		return err
	}
	if err := os.Rename(tmp, img); err != nil {
		return err
	}
	m := *i.Mark
	m.Size = size
	return writeMark(i.Dir, &m)
}

func notMore(name string, has, size jobs.Bytes) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("overlay %s has %s, and %s is not more", name, has, size), Hint: "it cannot shrink"}
}

// Usage is how much an overlay's layer takes and has.
type Usage struct {
	Disk jobs.Bytes `json:"disk_bytes"`           // on the disk
	Size jobs.Bytes `json:"size_bytes,omitempty"` // of an ext3 image, all
	Free jobs.Bytes `json:"free_bytes,omitempty"` // of it, not used
	// Inodes and FreeInodes count the files of an ext3 image.
	Inodes     int64 `json:"inodes,omitempty"`
	FreeInodes int64 `json:"free_inodes,omitempty"`
}

// Usage measures the overlay's layer. Of an image that is in use the numbers
// are those of its last unmount.
func (i *Info) Usage() (u Usage, err error) {
	if i.Mark.Driver == jobs.DriverExt3 {
		return ext3Usage(i.Layer())
	}
	took, err := Measure(context.Background(), filepath.Join(i.Layer(), "upper"), Space{})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return Usage{Disk: took.Bytes}, err
}

func ext3Usage(path string) (u Usage, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return u, err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		u.Disk = jobs.Bytes(st.Blocks * 512)
	}
	if !fi.Mode().IsRegular() {
		return u, errors.New(path + " is a " + kindOf(fi))
	}
	b, err := superblock(path)
	if err != nil {
		return u, err
	}
	n := func(at int) int64 { return int64(le.Uint32(b[at:])) }
	block := jobs.Bytes(1024) << (n(0x18) & 0xf)
	u.Size, u.Free = jobs.Bytes(n(0x4))*block, jobs.Bytes(n(0xC))*block
	u.Inodes, u.FreeInodes = n(0x0), n(0x10)
	return u, nil
}
