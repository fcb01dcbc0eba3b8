package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
)

// Image is the image that a layer stands over, as far as it is known.
type Image struct {
	Path string
	ID   string // [ImageID] or [DirID]
	Sum  string // SHA-256 of the file in hexadecimal digits, "" where the file was not read
}

// over tells whether a layer with this mark may stand over an image: its first
// one decides. The sums decide where both are known.
func (m *Mark) over(img Image) bool {
	if m.ImageSum != "" && img.Sum != "" {
		return m.ImageSum == img.Sum
	}
	return m.ImageID == "" || m.ImageID == img.ID
}

// bind gives the mark what is known of its image, and tells whether that is
// news.
func (m *Mark) bind(img Image) (news bool) {
	if img.ID == "" {
		return false
	}
	if m.ImageID == "" {
		m.Image, m.ImageID, m.ImageSum = img.Path, img.ID, img.Sum
		return true
	}
	if m.ImageSum == "" && img.Sum != "" {
		m.ImageSum = img.Sum
		return true
	}
	return false
}

// CheckImage refuses an image that the overlay called name does not belong to.
func (m *Mark) CheckImage(name string, img Image) error {
	if m.over(img) {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg: fmt.Sprintf("overlay %s was made over another image (%s), and %s is not it", name, m.Image, img.Path),
		Hint: "use that image, or another overlay; what it risks to have this one over it: berth overlay convert " + name +
			" --image " + shellescape.Quote(img.Path)}
}

// imageAt is what is known of the image at a given path; "" is none.
func imageAt(path string) (img Image, err error) {
	if path == "" {
		return img, nil
	}
	if img.Path, err = filepath.Abs(path); err != nil {
		return img, err
	}
	if img.ID, err = LowerID(img.Path); errors.Is(err, fs.ErrNotExist) {
		err = &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no image " + img.Path, Hint: "name the SIF; berth image ls lists those in the cache"}
	}
	return img, err
}
