package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Snapshot is a copy of an overlay's layer, kept beside it.
type Snapshot struct {
	Label string    `json:"label"`
	Made  time.Time `json:"made"`
}

// LabelForm is how a snapshot is called that was given no label, in UTC.
const LabelForm = "20060102-150405"

func checkLabel(label string) error {
	if CheckName(label) != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name a snapshot", label),
			Hint: "use lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return nil
}

// listSnapshots returns them in the order in which they were made. The mark of
// one is that of the overlay, with the time of the snapshot.
func listSnapshots(dir string) ([]Snapshot, error) {
	if err := plainDir(filepath.Join(dir, dirSnapshots), "snapshots"); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(dir, dirSnapshots))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Snapshot
	for _, e := range entries {
		if !e.IsDir() || CheckName(e.Name()) != nil {
			continue
		}
		m, err := ReadMark(filepath.Join(dir, dirSnapshots, e.Name()))
		if err != nil {
			return nil, err
		}
		if m != nil {
			out = append(out, Snapshot{Label: e.Name(), Made: m.Created})
		}
	}
	slices.SortStableFunc(out, func(a, b Snapshot) int { return a.Made.Compare(b.Made) })
	return out, nil
}

func snapshotDir(dir, label string) string { return filepath.Join(dir, dirSnapshots, label) }

// snapshotMark reads the mark of a snapshot, which must exist.
func (i *Info) snapshotMark(label string) (*Mark, error) {
	if err := checkLabel(label); err != nil {
		return nil, err
	}
	at := snapshotDir(i.Dir, label)
	if err := plainDir(at, "snapshot "+label); err != nil {
		return nil, err
	}
	m, err := ReadMark(at)
	if err == nil && m == nil {
		err = &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("overlay %s has no snapshot %s", i.Name, label),
			Hint: "berth overlay show " + i.Name}
	}
	return m, err
}

// snapshotOf finds a snapshot by its label.
func (i *Info) snapshotOf(label string) (*Mark, error) {
	m, err := i.snapshotMark(label)
	if err == nil {
		if err = hasLayer(layerPath(snapshotDir(i.Dir, label), m.Driver), m.Driver); err != nil {
			err = &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("snapshot %s of overlay %s has lost its content", label, i.Name),
				Err: fmt.Errorf("%w: %w", ErrLost, err), Hint: "use another one: berth overlay show " + i.Name}
		}
	}
	return m, err
}

// Snapshot copies an overlay's layer beside it.
func (s *Set) Snapshot(ctx context.Context, name, label string, force bool) (*Snapshot, error) {
	now := time.Now().UTC()
	if label == "" {
		label = now.Format(LabelForm)
	}
	if err := checkLabel(label); err != nil {
		return nil, err
	}
	i, release, err := s.held(ctx, name, "snapshot", force)
	if err != nil {
		return nil, err
	}
	defer release()
	to := snapshotDir(i.Dir, label)
	if _, err := os.Lstat(to); err == nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("overlay %s has a snapshot %s already", name, label),
			Hint: "choose another label"}
	}
	m := *i.Mark
	m.Created = now
	if err := s.put(ctx, i.Layer(), to, &m); err != nil {
		return nil, fmt.Errorf("snapshot overlay %s: %w", name, err)
	}
	return &Snapshot{Label: label, Made: now}, nil
}

// put copies a layer into a new directory with a mark, all in one rename and
// synced: a snapshot that a crash of the node could take away would be none.
func (s *Set) put(ctx context.Context, layer, to string, m *Mark) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(to), prefixTemp+"*")
	if err != nil {
		return err
	}
	err = copyLayer(ctx, s.On, m.Driver, layer, layerPath(temp, m.Driver))
	if err == nil {
		err = syncLayer(m.Driver, layerPath(temp, m.Driver))
	}
	if err == nil {
		err = writeMark(temp, m)
	}
	if err == nil {
		err = os.Rename(temp, to)
	}
	if err != nil {
		return errors.Join(err, run.RemoveFiles(context.WithoutCancel(ctx), s.On, temp))
	}
	return disk.SyncDir(filepath.Dir(to))
}

// held is [Set.made] with the lease, and what a kill has left unfinished done.
func (s *Set) held(ctx context.Context, name, verb string, force bool) (*Info, func(), error) {
	i, err := s.made(name)
	if err != nil {
		return nil, nil, err
	}
	l, release, err := s.take(ctx, i.Dir, verb, force)
	if err != nil {
		return nil, nil, err
	}
	// The mark as it is now that no other process changes the overlay.
	if i, err = s.made(name); err == nil {
		err = settleLayer(ctx, s.On, i.Dir, i.Mark)
	}
	if err == nil {
		if err = hasLayer(i.Layer(), i.Mark.Driver); err != nil {
			err = &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + name + " has lost its content", Err: fmt.Errorf("%w: %w", ErrLost, err),
				Hint: "berth overlay restore " + name + " LABEL, or berth overlay rm " + name}
		}
		if err != nil && verb == "restore" {
			err = nil
		}
	}
	if err == nil && i.Mark.Driver == jobs.DriverExt3 && verb != "restore" {
		var repaired bool
		if repaired, err = checkExt3(ctx, s.On, i.Layer()); repaired {
			s.say("overlay %s had not been unmounted cleanly and was repaired with e2fsck", name)
		}
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	i.lease = l
	freshen(i.Dir)
	return i, release, nil
}

// Restore puts the layer of a snapshot in the place of the overlay's. It takes
// effect at once or not at all; the snapshot stays.
func (s *Set) Restore(ctx context.Context, name, label string, force bool) error {
	if err := checkLabel(label); err != nil {
		return err
	}
	i, release, err := s.held(ctx, name, "restore", force)
	if err != nil {
		return err
	}
	defer release()
	was, err := i.snapshotOf(label)
	if err != nil {
		return err
	}
	m := *was
	m.Name, m.Created = i.Mark.Name, i.Mark.Created
	if m.ImageID == "" { // it was made before the overlay belonged to an image
		m.Image, m.ImageID, m.ImageSum = i.Mark.Image, i.Mark.ImageID, i.Mark.ImageSum
	}
	restored := filepath.Join(i.Dir, dirRestored)
	if err := run.RemoveFiles(ctx, s.On, restored); err != nil {
		return err
	}
	if err := s.put(ctx, layerPath(snapshotDir(i.Dir, label), m.Driver), restored, &m); err != nil {
		return fmt.Errorf("restore overlay %s: %w", name, err)
	}
	if err := i.stands(); err != nil {
		return err
	}
	if m.Driver != i.Mark.Driver { // it was converted since
		m.Moving = true
		if err := writeMark(i.Dir, &m); err != nil {
			return err
		}
		return finishMove(context.WithoutCancel(ctx), s.On, i.Dir, &m)
	}
	if err := swap(filepath.Join(restored, filepath.Base(i.Layer())), i.Layer()); err != nil {
		return fmt.Errorf("restore overlay %s: %w", name, err)
	}
	if err := disk.SyncDir(restored); err != nil {
		return err
	}
	if err := writeMark(i.Dir, &m); err != nil {
		return err
	}
	return run.RemoveFiles(ctx, s.On, restored)
}

// RemoveSnapshot removes a snapshot; what is made of the overlay itself goes on.
func (s *Set) RemoveSnapshot(ctx context.Context, name, label string) error {
	i, err := s.made(name)
	if err != nil {
		return err
	}
	if _, err := i.snapshotMark(label); err != nil {
		return err
	}
	at := snapshotDir(i.Dir, label)
	temp, err := os.MkdirTemp(filepath.Dir(at), prefixTemp+"*")
	if err == nil {
		err = os.Rename(at, filepath.Join(temp, label)) // from here on it is none
	}
	if err != nil {
		return err
	}
	return run.RemoveFiles(ctx, s.On, temp)
}

// swap puts what stands at from in the place of to, and to's in its place
// where the file system can exchange two names; else it renames twice, and a
// kill between the two is repaired by [settleSwap]. After an error what stood at
// to is put back, if possible.
func swap(from, to string) error {
	if fi, err := os.Lstat(from); err != nil || !fi.IsDir() {
		return os.Rename(from, to)
	}
	if !testNoExchange && exchange(from, to) == nil {
		return nil
	}
	old := filepath.Join(filepath.Dir(from), dirOld)
	if err := os.Rename(to, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	testStep("swap: aside")
	err := os.Rename(from, to)
	if err == nil {
		return nil
	}
	if berr := os.Rename(old, to); berr != nil && !errors.Is(berr, fs.ErrNotExist) {
		err = errors.Join(err, berr)
	}
	return err
}

// Fork makes a new overlay of what another one holds, or, while that one is in
// use, held at its last snapshot.
func (s *Set) Fork(ctx context.Context, name, to string) (*Info, error) {
	dir, err := s.fresh(to)
	if err != nil {
		return nil, err
	}
	src, err := s.read(ctx, name, "fork")
	if err != nil {
		return nil, err
	}
	defer src.release()
	release, err := s.begin(ctx, dir, "fork")
	if err != nil {
		return nil, err
	}
	defer release()
	m := *src.mark
	m.Name, m.Created, m.Kept = to, time.Now().UTC(), nil
	err = copyLayer(ctx, s.On, m.Driver, src.layer, layerPath(dir, m.Driver))
	if err == nil {
		err = syncLayer(m.Driver, layerPath(dir, m.Driver))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fork overlay %s: %w", name, err),
			run.RemoveFiles(context.WithoutCancel(ctx), s.On, layerPath(dir, m.Driver)))
	}
	if err := writeMark(dir, &m); err != nil {
		return nil, err
	}
	return s.done(to)
}

// source is a layer that no process changes.
type source struct {
	name    string
	mark    *Mark
	layer   string
	release func()
}

// read gives an overlay's layer to a reader: of an overlay that is in use, that
// of its last snapshot.
func (s *Set) read(ctx context.Context, name, verb string) (*source, error) {
	i, release, err := s.held(ctx, name, verb, false)
	if err == nil {
		return &source{name: name, mark: i.Mark, layer: i.Layer(), release: release}, nil
	}
	if jobs.KindOf(err) != jobs.KindAgain {
		return nil, err
	}
	i, gerr := s.made(name)
	if gerr != nil {
		return nil, gerr
	}
	if len(i.Snapshots) == 0 {
		return nil, &jobs.Error{Kind: jobs.KindAgain, Err: err, Msg: "overlay " + name + " has no snapshot that could be read meanwhile",
			Hint: "--wait waits until it is free; then `berth overlay snapshot " + name + "` makes one for the next time"}
	}
	last := i.Snapshots[len(i.Snapshots)-1]
	m, err := i.snapshotOf(last.Label)
	if err != nil {
		return nil, err
	}
	s.say("overlay %s is in use: this is its snapshot %s", name, last.Label)
	return &source{name: name, mark: m, layer: layerPath(snapshotDir(i.Dir, last.Label), m.Driver), release: func() {}}, nil
}

// Left is what a killed process has left behind.
type Left struct {
	Path string `json:"path"`
	What string `json:"what"`
	Err  error  `json:"-"`
}

// Collect removes what killed verbs and jobs have left behind, and layers that
// were kept for longer than [Set].Older, or only finds them.
// Nothing of an overlay that is in use is touched.
func (s *Set) Collect(ctx context.Context, dry bool) ([]Left, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look for what overlays have left behind", Err: err}
	}
	var out []Left
	remove := func(path, what string) {
		l := Left{Path: path, What: what}
		if !dry {
			if isAttempt(path) {
				l.Err = removeAttempt(ctx, s.On, path)
			} else {
				l.Err = run.RemoveFiles(ctx, s.On, path)
			}
		}
		out = append(out, l)
	}
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), prefixGone):
			if onlyOurs(path) == nil {
				remove(path, "half removed overlay")
			}
		case CheckName(e.Name()) == nil:
			s.collectIn(ctx, path, dry, remove)
		}
	}
	older := s.Older
	if older == 0 {
		older = KeptFor
	}
	err = s.collectKept(ctx, dry, older, remove)
	return out, errors.Join(err, ctx.Err())
}

func (s *Set) collectIn(ctx context.Context, dir string, dry bool, remove func(path, what string)) {
	m, err := ReadMark(dir)
	if err != nil || onlyOurs(dir) != nil || plainDir(filepath.Join(dir, dirSnapshots), "snapshots") != nil {
		return
	}
	type left struct{ path, what string }
	var found []left
	for _, p := range attempts(dir) {
		found = append(found, left{p, "copy of a killed attempt"})
	}
	for _, pattern := range []string{prefixTemp + "*", prefixMkfs + "*", fileImage + ".new", dirRestored, filepath.Join(dirSnapshots, prefixTemp+"*")} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return
		}
		for _, p := range paths {
			found = append(found, left{p, "half made copy"})
		}
	}
	if m == nil && lostMark(dir) != nil {
		return // it may be worth something
	}
	if m == nil {
		found = []left{{dir, "half made overlay"}}
	}
	if len(found) == 0 {
		return
	}
	// Held even for looking: what another process makes right now was not left behind.
	release, err := s.hold(ctx, dir, "gc", false)
	if err != nil {
		return
	}
	defer release()
	if m != nil {
		if now, err := ReadMark(dir); err != nil || now == nil || settleLayer(ctx, s.On, dir, now) != nil {
			return
		}
	}
	for _, l := range found {
		if m == nil && !dry { // out of the way of whoever makes it next
			gone := s.goneName(dir)
			if now, err := ReadMark(dir); err != nil || now != nil || os.Rename(dir, gone) != nil {
				return
			}
			l.path = gone
		}
		remove(l.path, l.what)
	}
}
