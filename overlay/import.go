package overlay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"berth/internal/sys/run"
	"berth/jobs"
)

// Import makes an overlay of a tar that [Set.Export] has written, or of any
// other one. Driver, size and image are those of the spec, else those that the
// tar tells. Ids mean something in a tar that Export has written; of any other,
// and in an ext3 image, all files belong to this user.
func (s *Set) Import(ctx context.Context, r io.Reader, spec jobs.OverlaySpec, image string) (*Info, error) {
	dir, err := s.fresh(spec.Name)
	if err != nil {
		return nil, err
	}
	m := Mark{Version: markVersion, Name: spec.Name, Created: time.Now().UTC()}
	img, err := imageAt(image)
	if err != nil {
		return nil, err
	}
	m.bind(img)
	in := bufio.NewReaderSize(r, 1<<18)
	if err := notPatch(in); err != nil {
		return nil, err
	}
	release, err := s.begin(ctx, dir, "import")
	if err != nil {
		return nil, err
	}
	defer release()
	fail := func(err error) (*Info, error) {
		return nil, fmt.Errorf("import overlay %s: %w", spec.Name, errors.Join(err, discard(dir)))
	}
	temp, err := os.MkdirTemp(dir, prefixTemp+"*")
	if err != nil {
		return nil, err
	}
	layer := filepath.Join(temp, dirLayer)
	if err := makeDirs(layer); err != nil {
		return fail(err)
	}
	how := spec.Driver
	if how == "" || how == unpackAuto {
		how = unpackAuto
		if spec.Size != 0 || spec.Inodes != 0 || !TakesDirectories(s.Dir) {
			how = jobs.DriverExt3
		}
	}
	got, err := s.unpack(ctx, in, filepath.Join(layer, "upper"), how)
	if err != nil {
		return fail(err)
	}
	was := got.Mark
	if was == nil && how == unpackAuto { // the marks are that driver's
		spec.Driver = jobs.DriverFuse
	}
	if was != nil {
		if err := was.sane(); err != nil {
			return fail(err)
		}
		if m.Image == "" {
			m.Image, m.ImageID, m.ImageSum = was.Image, was.ImageID, was.ImageSum
		}
		if spec.Size == 0 && spec.Inodes == 0 && (spec.Driver == "" || spec.Driver == "auto") {
			spec.Driver = was.Driver
			if was.Driver != jobs.DriverExt3 && !TakesDirectories(s.Dir) {
				spec.Driver = jobs.DriverExt3
			}
		}
		if spec.Driver == was.Driver && spec.Size == 0 {
			spec.Size, spec.Inodes = was.Size, max(spec.Inodes, was.Inodes)
		}
	}
	if spec, err = s.settle(spec); err != nil {
		return fail(err)
	}
	m.Driver, m.Size, m.Inodes = spec.Driver, spec.Size, spec.Inodes
	if err := s.placeUnpacked(ctx, layer, layerPath(dir, m.Driver), spec, got); err != nil {
		return fail(err)
	}
	if err := run.RemoveFiles(ctx, s.On, temp); err != nil {
		return fail(err)
	}
	if err := writeMark(dir, &m); err != nil {
		return fail(err)
	}
	return s.done(spec.Name)
}

// placeUnpacked puts a directory with the files of a tar in the place of a layer
// of a driver: as it is, or as an ext3 image of it.
func (s *Set) placeUnpacked(ctx context.Context, layer, to string, spec jobs.OverlaySpec, u unpacked) error {
	switch {
	case layer == to:
		return nil
	case spec.Driver != jobs.DriverExt3:
		return os.Rename(layer, to)
	}
	if err := os.Chmod(filepath.Join(layer, "work"), 0o755); err != nil {
		return err
	}
	if err := mkfsFrom(ctx, s.On, to, layer, cmp.Or(spec.Size, DefaultSize), spec.Inodes, u.Hard && os.Geteuid() != 0); err != nil {
		return err
	}
	return run.RemoveFiles(ctx, s.On, layer)
}

// notPatch refuses a patch, which earlier versions exported. One begins with a
// line of text, and the first block of a tar has bytes of zero.
func notPatch(r *bufio.Reader) error {
	head, err := r.Peek(tarBlock)
	if bytes.HasPrefix(head, []byte("Overlay ")) && bytes.IndexByte(head, 0) < 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "it is a patch that an earlier version of berth has exported, and an overlay is made of a tar",
			Hint: "apply it in a directory with the image's files: patch -p1 <FILE; to move an overlay: berth overlay export NAME FILE.tar"}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sane refuses what no [Set.Export] tells of an overlay: a tar may be anybody's,
// and this is shown and made to count.
func (m *tarMark) sane() error {
	text := m.Driver + m.Image + m.ImageID + m.ImageSum
	if strings.ContainsFunc(text, unicode.IsControl) || m.Size < 0 || m.Inodes < 0 {
		return refused("the tar tells of its overlay what cannot be (driver %q, image %q, size %d, %d inodes)",
			m.Driver, m.Image, int64(m.Size), m.Inodes)
	}
	return nil
}

// unpack unpacks a tar: as root of a user namespace where there is one, because
// only that root can set ids and write to directories without permissions.
func (s *Set) unpack(ctx context.Context, r io.Reader, dir, how string) (u unpacked, err error) {
	can := false
	if os.Geteuid() != 0 {
		can, _, _ = run.OwnFiles(ctx)
	}
	if can {
		var out bytes.Buffer
		if err = s.inside(ctx, r, &out, filesUnpack, dir, how); err == nil {
			err = json.Unmarshal(out.Bytes(), &u)
		}
	} else {
		u, err = unpackTar(ctx, r, dir, how)
	}
	if err == nil && u.Others > 0 {
		s.say("the tar has files of other users: %d are yours now", u.Others)
	}
	return u, err
}
