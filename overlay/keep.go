package overlay

import (
	"context"
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
)

// Kept says of what a layer without a name was kept.
type Kept struct {
	Job     string     `json:"job"`     // its id
	Attempt string     `json:"attempt"` // its id
	State   jobs.State `json:"state"`   // how that ended
	// GoesOn: another attempt of the job goes on with it, and may wait for long.
	GoesOn bool `json:"goes_on,omitempty"`
}

// A layer that was kept is in a directory of its own among the overlays, and is
// called kept/ID.
const (
	dirKept    = ".kept"
	prefixKept = "kept/"
)

// KeptFor is how long a kept layer stays before [Set.Collect] removes it, unless
// it is told otherwise.
const KeptFor = 14 * 24 * time.Hour

// goesOnFor is the least of that for a layer that a waiting job goes on with.
const goesOnFor = 90 * 24 * time.Hour

// at is the directory of an overlay, whether it is there or not.
func (s *Set) at(name string) (string, error) {
	if id, ok := strings.CutPrefix(name, prefixKept); ok && CheckName(id) == nil {
		return filepath.Join(s.Dir, dirKept, id), nil
	}
	return filepath.Join(s.Dir, name), CheckName(name)
}

// nameOf is the name of the overlay in dir.
func nameOf(dir string) string {
	if filepath.Base(filepath.Dir(dir)) == dirKept {
		return prefixKept + filepath.Base(dir)
	}
	return filepath.Base(dir)
}

// ListKept returns the layers without a name that were kept.
func (s *Set) ListKept() ([]Info, error) {
	kept := *s
	kept.Dir = filepath.Join(s.Dir, dirKept)
	if fi, err := os.Lstat(kept.Dir); err != nil || !fi.IsDir() {
		return nil, nil
	}
	list, err := kept.List()
	for n := range list {
		list[n].Name = prefixKept + list[n].Name
	}
	return list, err
}

// Keep moves the throw-away layer of an attempt to the overlays in dir, for as
// long as [KeptFor], and returns the name under which it is an overlay there. m
// is its mark, and me is whose beat shows that it is still at it. Nothing may
// have the layer mounted.
func Keep(ctx context.Context, on jobs.Starter, dir string, l *Layer, m Mark, me Owner) (name string, err error) {
	if l.temp == "" || m.Kept == nil {
		return "", errors.New("only a throw-away layer is kept")
	}
	to, err := keptDir(dir, m.Kept)
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "keep the layer", Err: err, Hint: "is there space left? df -h " + dir}
	}
	lease, err := Acquire(to, me, nil)
	if err != nil {
		return "", err
	}
	m.Version, m.Name, m.Created = markVersion, nameOf(to), time.Now().UTC()
	path := layerPath(to, m.Driver)
	begun := filepath.Join(to, fileBegun)
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("keep the layer as overlay %s: %w", m.Name, err), lease.Release(), disk.RemoveTree(to))
	}
	if err = os.Rename(l.Path, path); err != nil { // another file system
		err = copyLayer(ctx, on, m.Driver, l.Path, path)
	}
	if err == nil {
		err = syncLayer(m.Driver, path)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = writeMark(to, &m)
	}
	if err != nil {
		return "", errors.Join(
			fmt.Errorf("keep the layer as overlay %s: %w", m.Name, err),
			lease.Release(),
			run.RemoveFiles(context.WithoutCancel(ctx), on, to),
		)
	}
	return m.Name, errors.Join(os.Remove(begun), lease.Release())
}

// keptDir makes a directory for a layer: of the name of its job, with more to
// it where that is taken. Nothing is made behind a symbolic link.
func keptDir(dir string, k *Kept) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if err := root.Mkdir(dirKept, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if fi, err := root.Lstat(dirKept); err != nil || !fi.IsDir() {
		return "", errors.Join(err, fmt.Errorf("%s is not a directory of berth's making", filepath.Join(dir, dirKept)))
	}
	for _, id := range []string{jobs.Short(k.Job), jobs.Short(k.Job) + "-" + jobs.Short(k.Attempt), k.Job + "-" + jobs.Short(k.Attempt)} {
		err = root.Mkdir(filepath.Join(dirKept, id), 0o700)
		if err == nil {
			return filepath.Join(dir, dirKept, id), disk.SyncDir(filepath.Join(dir, dirKept))
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", err
}

// collectKept removes what was kept for longer than older, and what is half
// kept.
func (s *Set) collectKept(ctx context.Context, dry bool, older time.Duration, remove func(path, what string)) error {
	list, err := s.ListKept()
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.Err == nil && i.Mark == nil {
			s.collectIn(ctx, i.Dir, dry, remove)
			continue
		}
		if i.Err != nil || i.Mark.Kept == nil || onlyOurs(i.Dir) != nil {
			continue // not what berth has kept
		}
		if age := time.Since(i.Mark.Created); age < older || i.Mark.Kept.GoesOn && age < goesOnFor {
			continue // not kept for long
		}
		if i.Holder != nil && dry {
			continue
		}
		what := fmt.Sprintf("layer of job %s, kept for %d days", jobs.Short(i.Mark.Kept.Job), int(time.Since(i.Mark.Created).Hours()/24))
		if dry {
			remove(i.Dir, what)
			continue
		}
		release, err := s.hold(ctx, i.Dir, "gc", false)
		if err != nil {
			continue // it is in use
		}
		gone := s.goneName(i.Dir)
		err = os.Rename(i.Dir, gone)
		release()
		if err == nil {
			remove(gone, what)
		}
	}
	return nil
}
