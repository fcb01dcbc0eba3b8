package overlay

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
)

// Conversion is what [Set.Convert] is to make of an overlay.
type Conversion struct {
	Driver string     // "" stays as it is, "auto" is as for a new one
	Size   jobs.Bytes // see [Mark]; of an ext3 image 0 is enough for what it holds, and the usual one
	Inodes int64      // see [jobs.OverlaySpec]
	Image  string     // path of a SIF that it is to belong to; "" stays as it is
	// Force has it belong to another image than the one it was made over.
	Force bool
}

// Convert has an overlay written by another driver, or belong to another image.
// A new layer is made beside the old one, durably, before it takes its place in
// one step: a kill leaves the old one or the new one. Deleted and replaced paths
// are marked as the new driver does it; ids of --fakeroot stay in directories.
// progress is told how many of how many bytes are written; it may be nil.
// Snapshots stay as they are.
func (s *Set) Convert(ctx context.Context, name string, c Conversion, progress func(done, all int64)) (*Info, error) {
	i, release, err := s.held(ctx, name, "convert", false)
	if err != nil {
		return nil, err
	}
	defer release()
	m := *i.Mark
	if c.Image != "" {
		if err := s.rebind(&m, name, c); err != nil {
			return nil, err
		}
	}
	switch driver := c.Driver; {
	case driver == "" && (c.Size != 0 || c.Inodes != 0):
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a size says nothing without a driver",
			Hint: "--driver ext3; an overlay that is ext3 is made larger by: berth overlay grow " + name + " --size SIZE"}
	case driver != "":
		spec, err := s.settle(jobs.OverlaySpec{Name: name, Driver: driver, Size: c.Size, Inodes: c.Inodes})
		if err != nil {
			return nil, err
		}
		if spec.Driver != m.Driver {
			if err := s.convertLayer(ctx, i, &m, spec, progress); err != nil {
				return nil, err
			}
			break
		}
		if c.Size != 0 || c.Inodes != 0 {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "overlay " + name + " is " + m.Driver + " already",
				Hint: "berth overlay grow " + name + " --size SIZE"}
		}
		fallthrough
	default:
		if err := i.stands(); err != nil {
			return nil, err
		}
		if err := writeMark(i.Dir, &m); err != nil {
			return nil, fmt.Errorf("convert overlay %s: %w", name, err)
		}
	}
	return s.done(name)
}

// rebind has a mark belong to another image.
func (s *Set) rebind(m *Mark, name string, c Conversion) error {
	img, err := imageAt(c.Image)
	if err != nil {
		return err
	}
	if !m.over(img) {
		if !c.Force {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("overlay %s was made over %s. Over %s its files are laid all the same: "+
					"what it has changed of the old image covers the new one's, what it has deleted stays deleted, "+
					"and lists of installed packages are the old image's", name, m.Image, img.Path),
				Hint: "keep a copy, then say --force: berth overlay snapshot " + name +
					" && berth overlay convert " + name + " --image " + shellescape.Quote(img.Path) + " --force"}
		}
		s.say("overlay %s belongs to %s from now on, and not to %s: programs of both may be mixed in it", name, img.Path, m.Image)
		m.ImageID = ""
	}
	m.bind(img)
	m.Image = img.Path
	return nil
}

// convertLayer makes the layer of another driver and has it take the place of
// the old one.
func (s *Set) convertLayer(ctx context.Context, i *Info, m *Mark, spec jobs.OverlaySpec, progress func(done, all int64)) error {
	fail := func(err error) error {
		e := &jobs.Error{Kind: jobs.KindOf(err), Msg: fmt.Sprintf("convert overlay %s to %s", i.Name, spec.Driver), Err: err, Hint: jobs.HintOf(err)}
		if e.Hint == "" {
			e.Kind, e.Hint = jobs.KindInfra, "it is as it was; is there space left? df -h "+i.Dir
		}
		return e
	}
	if err := clearAttempts(ctx, s.On, i.Dir); err != nil { // and what a killed conversion has half made
		return fail(err)
	}
	src := &source{name: i.Name, mark: i.Mark, layer: i.Layer()}
	t, err := s.survey(ctx, src)
	if err != nil {
		return err
	}
	if err := t.unmarked(i, spec.Driver); err != nil {
		return err
	}
	if spec.Driver == jobs.DriverExt3 {
		if err := t.fit(&spec); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp(i.Dir, prefixTemp+"*")
	if err != nil {
		return fail(err)
	}
	m.Driver, m.Size, m.Inodes, m.Moving = spec.Driver, spec.Size, spec.Inodes, true
	restored := filepath.Join(i.Dir, dirRestored)
	err = run.RemoveFiles(ctx, s.On, restored)
	if err == nil {
		testStep("convert: copy")
		err = s.rewrite(ctx, src, t, temp, spec, progress)
	}
	if err == nil {
		testStep("convert: sync")
		err = errors.Join(syncLayer(spec.Driver, layerPath(temp, spec.Driver)), disk.SyncDir(temp))
	}
	if err == nil {
		testStep("convert: name")
		err = os.Rename(temp, restored)
	}
	if err != nil {
		return fail(errors.Join(err, run.RemoveFiles(context.WithoutCancel(ctx), s.On, temp)))
	}
	if err := errors.Join(disk.SyncDir(i.Dir), i.stands()); err != nil {
		return fail(err)
	}
	testStep("convert: mark")
	if err := writeMark(i.Dir, m); err != nil {
		return fail(err)
	}
	testStep("convert: marked")
	return finishMove(context.WithoutCancel(ctx), s.On, i.Dir, m)
}

// unmarked refuses files of a driver to which their names mean nothing, when to
// the new one they are marks.
func (t *tree) unmarked(i *Info, driver string) error {
	if i.Mark.Driver != jobs.DriverKernel || driver == jobs.DriverKernel {
		return nil
	}
	for _, e := range t.list {
		if strings.HasPrefix(path.Base(e.path), prefixWhiteout) {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("overlay %s has /%s: to the driver %s that is no file, "+
					"but says that another one is deleted", i.Name, e.path, driver),
				Hint: "rename it, in a job with this overlay"}
		}
	}
	return nil
}

// rewrite makes the layer of spec in a directory of what another layer holds.
func (s *Set) rewrite(ctx context.Context, src *source, t tree, dir string, spec jobs.OverlaySpec, progress func(done, all int64)) error {
	layer := filepath.Join(dir, dirLayer)
	if err := makeDirs(layer); err != nil {
		return err
	}
	u, err := s.through(ctx, src, t, filepath.Join(layer, "upper"), spec.Driver, progress)
	if err != nil {
		return err
	}
	return s.placeUnpacked(ctx, layer, layerPath(dir, spec.Driver), spec, u)
}

// writeHead begins a tar with what is known of the overlay.
func writeHead(w io.Writer, of *Mark) error {
	m := tarMark{Mark: *of, IDs: idsContainer}
	if m.Driver == jobs.DriverExt3 {
		m.Size = cmp.Or(m.Size, DefaultSize)
	}
	mark, err := json.Marshal(m)
	if err != nil {
		return err
	}
	head := tar.NewWriter(w)
	records := map[string]string{paxComment: commentWord + string(mark)}
	if err := head.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: records}); err != nil {
		return err
	}
	return head.Flush()
}

// Space of an ext3 image: what a file takes beside its content at most, in
// blocks of its own and of directories, and the bytes for which mke2fs makes
// one inode.
const (
	perFile  = 8 * jobs.KiB
	perInode = 16 * jobs.KiB
)

// fit gives an ext3 image a size and inodes that take what a layer holds, with
// room to grow.
func (t *tree) fit(spec *jobs.OverlaySpec) error {
	files := int64(len(t.list))
	needs := jobs.Bytes(t.content()) + jobs.Bytes(files)*perFile
	if spec.Size == 0 && needs+needs/4 > DefaultSize {
		spec.Size = (needs + needs/2 + jobs.GiB - 1) / jobs.GiB * jobs.GiB
	}
	size := cmp.Or(spec.Size, DefaultSize)
	if jobs.Bytes(t.content()) > size {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the files take %s, and %s is less", shown(jobs.Bytes(t.content())), size),
			Hint: "a larger --size, or none"}
	}
	if spec.Inodes == 0 && files+files/4 > int64(size/perInode) {
		spec.Inodes = 2 * files
	}
	return nil
}

// finishMove puts the layer of a mark that says so in place: it stands complete
// in .restored, or, when this was killed, has its place already. The caller has
// the lease.
func finishMove(ctx context.Context, on jobs.Starter, dir string, m *Mark) error {
	if !m.Moving {
		return nil
	}
	to := layerPath(dir, m.Driver)
	from := filepath.Join(dir, dirRestored, filepath.Base(to))
	_, err := os.Lstat(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	moved := err != nil // by one that was killed
	if moved {
		if err := hasLayer(to, m.Driver); err != nil { // then what is there is all that there is
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: "overlay " + nameOf(dir) + " was to get the layer in " + filepath.Dir(from) + ", which is gone",
				Err: fmt.Errorf("%w: %w", ErrLost, err),
				Hint: "some sites remove old files; what it was before stands in " + dir +
					": restore it from a copy, or berth overlay rm " + nameOf(dir)}
		}
	}
	for _, old := range []string{filepath.Join(dir, dirLayer), filepath.Join(dir, fileImage)} {
		if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) || moved && old == to {
			continue
		}
		gone, err := os.MkdirTemp(dir, prefixTemp+"*")
		if err != nil {
			return err
		}
		if err := os.Rename(old, filepath.Join(gone, dirOld)); err != nil {
			return err
		}
	}
	testStep("move: aside")
	if !moved {
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	testStep("move: placed")
	if err := disk.SyncDir(dir); err != nil {
		return err
	}
	m.Moving = false
	if err := writeMark(dir, m); err != nil {
		return err
	}
	testStep("move: done")
	errs := []error{run.RemoveFiles(ctx, on, filepath.Join(dir, dirRestored))}
	for _, p := range startingWith(dir, prefixTemp) {
		errs = append(errs, run.RemoveFiles(ctx, on, p))
	}
	return errors.Join(errs...)
}

// settleLayer does what is left to do of a promotion, a restore or a conversion
// that was killed. The caller has the lease.
func settleLayer(ctx context.Context, on jobs.Starter, dir string, m *Mark) error {
	if err := finishMove(ctx, on, dir, m); err != nil {
		return err
	}
	return settleSwap(dir, m.Driver)
}
