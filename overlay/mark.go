package overlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"berth/jobs"
)

// Mark is mark.json of a persistent overlay, written once when it is made.
type Mark struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Driver  string `json:"driver"`
	// Size is the size of an ext3 image that a task asked for; 0 is [DefaultSize].
	Size    jobs.Bytes `json:"size_bytes,omitempty"`
	Image   string     `json:"image"`    // path when it was made, for people
	ImageID string     `json:"image_id"` // what must agree: see [ImageID]
	Created time.Time  `json:"created"`
}

const (
	fileMark  = "mark.json"
	fileImage = "layer.ext3"
	dirLayer  = "layer"
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// CheckName refuses what cannot be an overlay's name.
func CheckName(name string) error {
	if len(name) > 64 || !validName.MatchString(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an overlay", name),
			Hint: "use lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return nil
}

// markVersion is the schema of mark.json.
const markVersion = 1

// ReadMark returns the mark of the overlay in dir, or nil when there is none.
func ReadMark(dir string) (*Mark, error) {
	path := filepath.Join(dir, fileMark)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the mark of overlay " + filepath.Base(dir), Err: err}
	}
	var m Mark
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the overlay's mark " + path + " cannot be read", Err: err, Hint: "restore it, or use another overlay name"}
	}
	if m.Version > markVersion {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("overlay %s was made by a newer berth (schema %d)", filepath.Base(dir), m.Version), Hint: "use that version of berth, or another overlay name"}
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

// headSize is how much of a SIF without a UUID is read in place of it: the
// header, the descriptors, and the beginning of the file system, whose own
// header holds its size and the time it was made.
const headSize = 128 << 10

// ImageID identifies the SIF at path by the UUID in its header, which is made
// anew whenever an image is built and survives copying; of a SIF built without
// one, by the beginning of its content. A file that is no SIF is refused: it
// cannot be the lower layer of a container.
func ImageID(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	no := &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + path + " is not a SIF", Hint: "build one: apptainer build image.sif docker://IMAGE"}
	if !fi.Mode().IsRegular() { // not opened: opening a FIFO would wait
		return "", no
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, sifIDEnd)
	if _, err := io.ReadFull(f, head); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", no
	} else if err != nil {
		return "", err
	}
	if string(head[sifMagicAt:sifMagicAt+len(sifMagic)]) != sifMagic {
		return "", no
	}
	if id := head[sifIDAt:sifIDEnd]; !bytes.Equal(id, make([]byte, len(id))) {
		return fmt.Sprintf("sif:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16]), nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, headSize-sifIDEnd))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(head, rest...))
	return "sif-head:" + hex.EncodeToString(sum[:16]), nil
}

// DirID identifies an unpacked image that somebody keeps at path, by what
// changes when it is made anew. That its files stay as they are is for its
// owner to see to.
func DirID(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || !ok {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "image " + path + " is no directory"}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", path, st.Ino, fi.ModTime().UnixNano()))
	return "dir:" + hex.EncodeToString(sum[:16]), nil
}
