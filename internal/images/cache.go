package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/internal/sys/siffile"
	"berth/jobs"
	"berth/overlay"
)

// Image is what the cache knows of a file that it holds: SUM.json beside
// SUM.sif. It is written once; its time of change is that of the last use.
type Image struct {
	Version   int       `json:"version"`
	Sum       string    `json:"sum"`                 // SHA-256 of the file, in hexadecimal
	Size      int64     `json:"size"`                // bytes
	ID        string    `json:"image_id"`            // [overlay.ImageID]
	Reference string    `json:"reference,omitempty"` // it was first fetched as
	Digest    string    `json:"digest,omitempty"`    // of the registry's manifest
	Host      string    `json:"host,omitempty"`      // that has fetched it
	Created   time.Time `json:"created,omitzero"`
	// Definition is the SHA-256 of SUM.def, from which the image was built, and
	// Fakeroot how its %post was root; both are empty when it was fetched.
	Definition string `json:"definition,omitempty"`
	Fakeroot   string `json:"fakeroot,omitempty"`
	// Path and Used are not recorded.
	Path string    `json:"-"`
	Used time.Time `json:"-"`
	// Names are the references that were last found to be this content.
	Names []Resolved `json:"-"`
	// Recorded says that the cache has made the file; what has come over ssh
	// has no record.
	Recorded bool `json:"-"`
	// Shared says that it is in another user's cache.
	Shared bool `json:"-"`

	at time.Time // when its name was found to be it
}

// Resolved is a record of what a reference was found to be.
type Resolved struct {
	Version   int       `json:"version"`
	Reference string    `json:"reference"`
	Digest    string    `json:"digest,omitempty"` // that the registry had under it
	Sum       string    `json:"sum"`
	Time      time.Time `json:"time"`
}

// Names in the directory of the cache.
const (
	dirContents = "sha256"
	dirRefs     = "refs"
	dirPulls    = "pulls"
	dirChecked  = "checked"
	prefixNew   = ".new-"
	suffixSIF   = ".sif"
	suffixJSON  = ".json"
	suffixDef   = ".def"
)

var sumForm = pattern.Lazy(`^[0-9a-f]{64}$`)

// Dir is where a state directory has its images.
func Dir(home string) string { return filepath.Join(home, "images") }

// Path is where the file with this content stands.
func (c *Cache) Path(sum string) string {
	return filepath.Join(c.Dir, dirContents, sum+suffixSIF)
}

func (c *Cache) record(sum string) string {
	return filepath.Join(c.Dir, dirContents, sum+suffixJSON)
}

// DefinitionPath is where the definition stands from which the image with this
// content was built.
func (c *Cache) DefinitionPath(sum string) string {
	return filepath.Join(c.Dir, dirContents, sum+suffixDef)
}

// key is the name of a record or a lease: a reference may have any characters.
func key(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// found returns what a reference is recorded to be, if its file is there: in
// another user's cache, which is looked in first, or in the own one. A name
// that stands in both is what was found last; that of an image which was built
// is what the user has built.
func (c *Cache) found(ref string) (Image, bool) {
	own, ok := c.foundHere(ref)
	sh := c.shared()
	if sh == nil || ok && IsBuilt(ref) {
		return own, ok
	}
	theirs, has := sh.foundHere(ref)
	if !has || ok && own.Sum != theirs.Sum && own.at.After(theirs.at) {
		return own, ok
	}
	theirs.Shared = true
	return theirs, true
}

func (c *Cache) foundHere(ref string) (Image, bool) {
	r, ok := c.recorded(ref)
	if !ok {
		return Image{}, false
	}
	img, err := c.Have(r.Sum)
	if err != nil {
		return Image{}, false
	}
	img.Reference, img.Digest, img.at = ref, r.Digest, r.Time
	return img, true
}

// recorded returns the record of a reference.
func (c *Cache) recorded(ref string) (r Resolved, ok bool) {
	b, err := readOwn(filepath.Join(c.Dir, dirRefs, key(ref)+suffixJSON))
	return r, err == nil && json.Unmarshal(b, &r) == nil && r.Version == 1 && r.Reference == ref
}

// Recall returns the digest of the manifest of an index for a platform, or "".
func (c *Cache) Recall(index, platform string) string {
	r, _ := c.recorded("index:" + index + " " + platform)
	return r.Digest
}

// Remember records what [Cache.Recall] returns. Nothing depends on it.
func (c *Cache) Remember(index, platform, digest string) {
	ref := "index:" + index + " " + platform
	if b, err := json.Marshal(Resolved{Version: 1, Reference: ref, Digest: digest, Time: time.Now().UTC()}); err == nil {
		_ = c.replace(filepath.Join(c.Dir, dirRefs, key(ref)+suffixJSON), b)
	}
}

// noteAgain is how old a record grows before it is written again unchanged.
const noteAgain = time.Hour

// Have returns the image of this content, and looks whether its file is whole,
// but not what is in it: see [Cache.Verify].
func (c *Cache) Have(sum string) (Image, error) {
	if !sumForm().MatchString(sum) {
		return Image{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no SHA-256", sum)}
	}
	img := Image{Sum: sum, Path: c.Path(sum)}
	b, err := readOwn(c.record(sum))
	if err == nil {
		if jerr := json.Unmarshal(b, &img); jerr != nil || img.Version != 1 || img.Sum != sum {
			return Image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "the record " + c.record(sum) + " cannot be read", Err: jerr,
				Hint: "remove that file and " + c.Path(sum) + ", and pull the image again"}
		}
		img.Recorded = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return Image{}, err
	}
	fi, err := os.Lstat(img.Path)
	switch {
	case err != nil:
		return Image{}, err
	case !fi.Mode().IsRegular():
		return Image{}, &jobs.Error{Kind: jobs.KindConfig, Msg: img.Path + " is no file", Hint: "who has put that there? ls -ld " + img.Path}
	case img.Recorded && fi.Size() != img.Size:
		return Image{}, damaged(img.Path, fmt.Sprintf("it has %d bytes, and was made with %d", fi.Size(), img.Size),
			"berth image rm "+sum[:12]+"; the next use fetches it again")
	}
	img.Size, img.Used = fi.Size(), fi.ModTime()
	if img.Recorded {
		if fi, err := os.Stat(c.record(sum)); err == nil {
			img.Used = fi.ModTime()
		}
	}
	if img.ID == "" {
		img.ID, err = overlay.ImageID(img.Path)
	}
	return img, err
}

func damaged(path, why, hint string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + path + " is damaged", Err: errors.New(why), Hint: hint}
}

// use notes that an image is used now. Nothing but its age depends on it.
func (c *Cache) use(img Image) Image {
	if img.Recorded && !img.Shared {
		now := time.Now()
		_ = os.Chtimes(c.record(img.Sum), now, now)
	}
	return img
}

// note records what a reference was found to be. The last one counts.
func (c *Cache) note(ref, digest, sum string) error {
	if was, ok := c.recorded(ref); ok && was.Digest == digest && was.Sum == sum && digest != "" && time.Since(was.Time).Abs() < noteAgain {
		return nil
	}
	b, err := json.MarshalIndent(Resolved{Version: 1, Reference: ref, Digest: digest, Sum: sum, Time: time.Now().UTC()}, "", "  ")
	if err != nil {
		return err
	}
	return c.replace(filepath.Join(c.Dir, dirRefs, key(ref)+suffixJSON), b)
}

// replace puts a file of the cache in place.
func (c *Cache) replace(path string, b []byte) error {
	if err := c.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return replace(path, b, c.fileMode())
}

func replace(path string, b []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.Replace(path, b, mode)
}

// resolved are all records of references.
func (c *Cache) resolved() []Resolved {
	dir := filepath.Join(c.Dir, dirRefs)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []Resolved
	for _, e := range entries {
		var r Resolved
		if b, err := readOwn(filepath.Join(dir, e.Name())); err == nil &&
			!strings.HasPrefix(e.Name(), ".") && json.Unmarshal(b, &r) == nil && r.Version == 1 {
			out = append(out, r)
		}
	}
	return out
}

// List returns what the cache and the shared cache of another user hold, the last
// used first. What cannot be read is in the error, beside
// the rest.
func (c *Cache) List() ([]Image, error) {
	out, bad := c.listHere()
	if sh := c.shared(); sh != nil {
		theirs, err := sh.listHere()
		bad = errors.Join(bad, err)
		for _, img := range theirs {
			img.Shared = true
			out = append(out, img)
		}
	}
	slices.SortFunc(out, func(a, b Image) int { return b.Used.Compare(a.Used) })
	return out, bad
}

func (c *Cache) listHere() ([]Image, error) {
	entries, err := os.ReadDir(filepath.Join(c.Dir, dirContents))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string][]Resolved{}
	for _, r := range c.resolved() {
		if !strings.HasPrefix(r.Reference, byDigest) {
			names[r.Sum] = append(names[r.Sum], r)
		}
	}
	var out []Image
	var bad error
	for _, e := range entries {
		sum, ok := strings.CutSuffix(e.Name(), suffixSIF)
		if !ok || !sumForm().MatchString(sum) {
			continue
		}
		img, err := c.Have(sum)
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		img.Names = names[sum]
		slices.SortFunc(img.Names, func(a, b Resolved) int { return strings.Compare(a.Reference, b.Reference) })
		out = append(out, img)
	}
	return out, bad
}

// Find returns the image that a word names: a reference, a registry's digest,
// or the beginning of the content's SHA-256, of 8 characters or more.
func (c *Cache) Find(word string) (Image, error) {
	list, bad := c.List()
	sum := strings.TrimPrefix(word, "sha256:")
	ref, _ := Settle(word)
	var hits []Image
	for _, img := range list {
		if len(sum) >= 8 && strings.HasPrefix(img.Sum, sum) || word == img.Digest || slices.ContainsFunc(img.Names, func(r Resolved) bool {
			return r.Reference == ref || r.Reference == word || r.Digest == word
		}) {
			hits = append(hits, img)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return Image{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("the cache has no image %.200q", word), Err: bad,
			Hint: "berth image ls lists what it has; berth image pull fetches one"}
	}
	return Image{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q names %d images", word, len(hits)),
		Hint: "give more of the SHA-256: berth image ls"}
}

// Whole looks whether the file is a SIF from its first to its last byte, by
// the sizes that its header gives. It returns its id.
func Whole(path string) (string, error) {
	id, err := overlay.ImageID(path)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	head, err := siffile.ReadHeader(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	end, ok := head.End()
	if !ok {
		return "", damaged(path, "its header promises what no file can hold", "fetch it again")
	}
	if end > fi.Size() {
		return "", damaged(path, fmt.Sprintf("its header promises %d bytes, and it has %d", end, fi.Size()), "fetch it again")
	}
	return id, nil
}

// CutOff refuses a SIF of the user's whose header promises more than the file
// has. What it cannot read of the header it leaves to the container program.
func CutOff(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	head, err := siffile.ReadHeader(f)
	if err != nil {
		return nil //nolint:nilerr // no header that could be judged
	}
	if end, ok := head.End(); ok && end > fi.Size() {
		return damaged(path, fmt.Sprintf("it is cut off: its header promises %d bytes, and it has %d", end, fi.Size()), "copy or make it again")
	}
	return nil
}

// Verify reads a whole file of the cache and compares it with its name.
func (c *Cache) Verify(ctx context.Context, img Image) error {
	if _, err := Whole(img.Path); err != nil {
		return err
	}
	sum, err := Sum(ctx, img.Path)
	if err != nil {
		return err
	}
	if sum != img.Sum {
		return damaged(img.Path, "its SHA-256 is "+sum, "berth image rm "+img.Sum[:12]+"; the next use fetches it again")
	}
	return nil
}
