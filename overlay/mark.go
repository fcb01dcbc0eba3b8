package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"berth/jobs"

	"github.com/google/uuid"
)

// Mark is mark.json of a persistent overlay, written once when it is made.
type Mark struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Driver  string    `json:"driver"`
	Image   string    `json:"image"`    // path when it was made, for people
	ImageID string    `json:"image_id"` // what must agree: see [ImageID]
	Created time.Time `json:"created"`
}

const (
	fileMark  = "mark.json"
	fileLease = "lease.json"
	fileImage = "layer.ext3"
	dirLayer  = "layer"
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// CheckName refuses what cannot be an overlay's name.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an overlay", name),
			Hint: "use lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return nil
}

// ReadMark returns the mark of the overlay in dir, or nil when there is none.
func ReadMark(dir string) (*Mark, error) {
	b, err := os.ReadFile(filepath.Join(dir, fileMark))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var m Mark
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("read the mark of overlay %s: %w", filepath.Base(dir), err)
	}
	return &m, nil
}

// Offsets in the SIF header (the SIF format of Apptainer and SingularityCE,
// "Global header"): a 32 byte launch line, then magic, version, architecture
// and the UUID. These 16 bytes are all that is wanted of it, and the library
// for the format would bring registry clients into the program on the nodes.
const (
	sifMagicAt = 32
	sifMagic   = "SIF_MAGIC\x00"
	sifIDAt    = sifMagicAt + 10 + 3 + 3
	sifIDEnd   = sifIDAt + 16
)

// ImageID identifies the SIF at path by the UUID in its header, which is made
// anew whenever an image is built and survives copying. A file that is no SIF
// is refused: it cannot be the lower layer of a container.
func ImageID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	var h [sifIDEnd]byte
	if _, err := io.ReadFull(f, h[:]); err != nil || string(h[sifMagicAt:sifMagicAt+len(sifMagic)]) != sifMagic {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + path + " is not a SIF", Hint: "build one: apptainer build image.sif docker://IMAGE"}
	}
	id, err := uuid.FromBytes(h[sifIDAt:sifIDEnd])
	if err != nil {
		return "", err
	}
	return "sif:" + id.String(), nil
}
