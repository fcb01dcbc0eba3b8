package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"berth/jobs"
)

// fileTry, in the root of the layer that is tried, tells the second process
// what the first one has done.
const fileTry = ".berth-try.json"

// tryPlaces are where a directory of an image is looked for that can be
// removed and moved; the layer is thrown away.
var tryPlaces = []string{"usr/share/doc", "usr/share", "etc", "usr/lib", "usr", "opt", "var", ""}

// tried is what was done to an image.
type tried struct {
	Removed string   `json:"removed"` // a directory of the image, removed and made again
	Moved   string   `json:"moved"`   // another one, moved
	Names   []string `json:"names"`   // what was in it
}

// ErrNoVictims is that an image cannot be used to try a layer.
var ErrNoVictims = errors.New("the image has no two small directories to try it with")

// TryChange does below root, which is the root directory of a container, what
// goes wrong in some layers: it removes a directory of the image, makes it
// again, moves another one, and looks at each at once. The layer is to be
// thrown away.
func TryChange(root string) error {
	victims := findVictims(root)
	if len(victims) < 2 {
		return ErrNoVictims
	}
	t := tried{Removed: victims[0], Moved: victims[1]}
	var err error
	if t.Names, err = namesIn(filepath.Join(root, t.Moved)); err != nil {
		return err
	}
	removed := filepath.Join(root, t.Removed)
	if err := os.RemoveAll(removed); err != nil {
		return fmt.Errorf("remove a directory of the image: %w", err)
	}
	if err := os.Mkdir(removed, 0o755); err != nil {
		return fmt.Errorf("make a removed directory of the image again: %w", err)
	}
	if err := os.WriteFile(filepath.Join(removed, "new"), nil, 0o644); err != nil {
		return fmt.Errorf("write into a directory that was made again: %w", err)
	}
	if err := move(filepath.Join(root, t.Moved), filepath.Join(root, movedTo(t.Moved))); err != nil {
		return fmt.Errorf("move a directory of the image: %w", err)
	}
	if err := t.check(root); err != nil {
		return err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, fileTry), b, 0o644)
}

// TryLook finds, in another container over the same layer, what [TryChange]
// has left.
func TryLook(root string) error {
	b, err := os.ReadFile(filepath.Join(root, fileTry))
	if err != nil {
		return fmt.Errorf("find what was written before: %w", err)
	}
	var t tried
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	return t.check(root)
}

func movedTo(dir string) string { return dir + ".berth-moved" }

func (t tried) check(root string) error {
	names, err := namesIn(filepath.Join(root, t.Removed))
	if err != nil {
		return err
	}
	if !slices.Equal(names, []string{"new"}) {
		return fmt.Errorf("a directory that was removed and made again has %d entries, not the one written into it", len(names))
	}
	if _, err := os.Lstat(filepath.Join(root, t.Moved)); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("a directory that was moved is still there")
	}
	names, err = namesIn(filepath.Join(root, movedTo(t.Moved)))
	if err != nil {
		return err
	}
	if !slices.Equal(names, t.Names) {
		return fmt.Errorf("a directory that was moved has %d entries in place of %d", len(names), len(t.Names))
	}
	return nil
}

// move does what mv does: overlays answer EXDEV for a directory of the image,
// which is then copied and removed.
func move(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.RemoveAll(from)
}

// findVictims returns small directories of the image, none within another,
// that have entries.
func findVictims(root string) (found []string) {
	for _, place := range tryPlaces {
		entries, err := os.ReadDir(filepath.Join(root, place))
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(place, e.Name())
			if !e.IsDir() || slices.Contains(keepOut, dir) || !small(filepath.Join(root, dir)) {
				continue
			}
			if found = append(found, dir); len(found) == 2 {
				return found
			}
		}
	}
	return nil
}

// keepOut are mount points of the container program, and what leads to them.
var keepOut = []string{"proc", "sys", "dev", "tmp", "etc", "usr", "var", ".berth", jobs.ImageDir, "home", "root"}

// small tells whether dir holds a few regular files and nothing else.
func small(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 || len(entries) > 20 {
		return false
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > 1<<20 {
			return false
		}
	}
	return true
}

func namesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// MakeTiny makes a directory that [TryChange] is content with as an image: no
// program but what is bound into it can run there.
func MakeTiny(dir string) error {
	for _, d := range []string{"usr/share/doc/one", "usr/share/doc/two", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "bin", ".berth", scriptsDir} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range []string{"usr/share/doc/one/a", "usr/share/doc/one/b", "usr/share/doc/two/c"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			return err
		}
	}
	return nil
}
