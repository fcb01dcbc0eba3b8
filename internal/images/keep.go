package images

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// filePin stands in the directory of an environment and says which image it was
// last opened with.
const filePin = "image.json"

// Pin notes that the environment in dir was opened with an image of the cache.
func Pin(dir string, img Image) error {
	b, err := json.Marshal(map[string]any{"version": 1, "sum": img.Sum, "path": img.Path})
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, filePin), b, 0o600)
}

// Pinned returns the SHA-256 of the image that an environment was last opened
// with, or "".
func Pinned(dir string) string {
	var p struct{ Sum string }
	if b, err := os.ReadFile(filepath.Join(dir, filePin)); err != nil || json.Unmarshal(b, &p) != nil || !sumForm().MatchString(p.Sum) {
		return ""
	}
	return p.Sum
}

// Remove takes an image out of the cache, with its names. What has no record
// was not made by the cache, and stays.
func (c *Cache) Remove(img Image) error {
	if img.Shared {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + img.Path + " is in a cache that is not yours",
			Hint: "ask whom it belongs to: ls -ld " + c.Shared}
	}
	if !img.Recorded || !sumForm().MatchString(img.Sum) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + c.Path(img.Sum) + " has no record of berth's: it came over ssh, or from elsewhere",
			Hint: "when no job uses it: rm " + c.Path(img.Sum)}
	}
	// The names first: who comes in between fetches it again.
	for _, r := range c.resolved() {
		if r.Sum == img.Sum {
			_ = os.Remove(filepath.Join(c.Dir, dirRefs, key(r.Reference)+suffixJSON))
		}
	}
	for _, path := range []string{c.Path(img.Sum), c.DefinitionPath(img.Sum)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(c.record(img.Sum))
}

// Broken returns the images with a record whose files are missing or damaged, so
// that they can be removed.
func (c *Cache) Broken() []Image {
	entries, err := os.ReadDir(filepath.Join(c.Dir, dirContents))
	if err != nil {
		return nil
	}
	var out []Image
	for _, e := range entries {
		sum, ok := strings.CutSuffix(e.Name(), suffixJSON)
		if !ok || !sumForm().MatchString(sum) {
			continue
		}
		if _, err := c.Have(sum); err != nil {
			if fi, err := os.Lstat(c.Path(sum)); err == nil && !fi.Mode().IsRegular() {
				continue
			}
			out = append(out, Image{Sum: sum, Path: c.Path(sum), Recorded: true})
		}
	}
	return out
}

// Sweep removes what killed pullers have left, older than a day, and returns it.
func (c *Cache) Sweep(dry bool) (removed []string) {
	remove := func(path string) {
		fi, err := os.Lstat(path)
		if err != nil || time.Since(fi.ModTime()) < 24*time.Hour {
			return
		}
		if dry || disk.RemoveTree(path) == nil {
			removed = append(removed, path)
		}
	}
	// A profile may name any directory as the cache: what has not exactly the
	// name of berth's making stays.
	for dir, form := range map[string]*regexp.Regexp{"": makingForm(), dirRefs: tempForm(), dirContents: tempForm()} {
		list, _ := filepath.Glob(filepath.Join(c.Dir, dir, prefixNew+"*"))
		for _, path := range list {
			if form.MatchString(filepath.Base(path)) {
				remove(path)
			}
		}
	}
	sweepOld(filepath.Join(c.Dir, dirChecked), dry)
	pulls, _ := filepath.Glob(filepath.Join(c.Dir, dirPulls, "*"))
	for _, dir := range pulls {
		if !keyForm().MatchString(filepath.Base(dir)) {
			continue
		}
		if h, err := lease.Holder(dir); err == nil && (h == nil || h.Process().Gone(lease.Self())) {
			remove(dir)
		}
	}
	return removed
}

// The names of what berth makes in a cache: of records and leases, of what is
// being fetched, of files that are being written.
var (
	keyForm    = pattern.Lazy(`^[0-9a-f]{32}$`)
	makingForm = pattern.Lazy(`^\.new-[0-9a-f]{32}-[0-9]+$`)
	tempForm   = pattern.Lazy(`^\.new-[0-9]+$`)
)

// SweepFormer removes what versions before this one have kept in dir, which is
// that of a state directory ([Dir]) and never one that a profile names,
// not used for so long: SIFs by reference (KEY.sif), and images unpacked for
// environments (unpacked/KEY). used tells of a path whether something needs the
// image that stands there, or stood there.
func SweepFormer(dir string, used func(path string) bool, older time.Duration, dry bool) (removed []string) {
	remove := func(path string, since time.Time) {
		if time.Since(since) >= older && (dry || disk.RemoveTree(path) == nil) {
			removed = append(removed, path)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"+suffixSIF))
	for _, path := range files {
		fi, err := os.Lstat(path)
		if err == nil && fi.Mode().IsRegular() && formerForm().MatchString(filepath.Base(path)) && !used(path) {
			remove(path, fi.ModTime())
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(dir, dirFormer, "*"))
	for _, dir := range dirs {
		// Written last, and by berth alone: what has none is not touched.
		var of struct{ Image string }
		b, err := os.ReadFile(filepath.Join(dir, "complete.json"))
		fi, serr := os.Lstat(dir)
		if err == nil && serr == nil && fi.IsDir() && json.Unmarshal(b, &of) == nil && filepath.IsAbs(of.Image) && !used(of.Image) {
			remove(dir, fi.ModTime())
		}
	}
	return removed
}

const dirFormer = "unpacked"

var formerForm = pattern.Lazy(`^[0-9a-f]{16,64}\.sif$`)

// sweepOld removes what was remembered of files, when that is a month old: they
// are read again.
func sweepOld(dir string, dry bool) {
	entries, err := os.ReadDir(dir)
	if err != nil || dry {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && keyForm().MatchString(e.Name()) && time.Since(fi.ModTime()) > 30*24*time.Hour {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
