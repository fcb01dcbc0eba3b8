package overlay

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/pattern"
	"berth/internal/sys/siffile"
	"berth/jobs"
)

// Mark is mark.json of a persistent overlay, written when it is made and, by
// the holder of its lease, when its image or its size changes.
type Mark struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Driver  string `json:"driver"`
	// Size is the size that was asked for. Of an ext3 image 0 is [DefaultSize]; a
	// directory may become so large, and 0 is no limit.
	Size    jobs.Bytes `json:"size_bytes,omitempty"`
	Inodes  int64      `json:"inodes,omitempty"` // see [jobs.OverlaySpec]
	Image   string     `json:"image"`            // path when it was made, for people
	ImageID string     `json:"image_id"`         // what must agree: see [ImageID]
	// ImageSum is the SHA-256 of the image, where it was known when the layer was
	// opened; it must agree, too.
	ImageSum string    `json:"image_sha256,omitempty"`
	Created  time.Time `json:"created"`
	// Moving says that the layer stands in .restored, and is about to take its
	// place: see [finishMove].
	Moving bool `json:"moving,omitempty"`
	// Kept is of a layer without a name that was kept, see [Keep].
	Kept *Kept `json:"kept,omitempty"`
}

const (
	fileMark  = "mark.json"
	fileImage = "layer.ext3"
	dirLayer  = "layer"
)

var validName = pattern.Lazy(`^[a-z0-9][a-z0-9._-]*$`)

// CheckName refuses what cannot be an overlay's name.
func CheckName(name string) error {
	if env, ok := strings.CutPrefix(name, "env/"); ok && validName().MatchString(env) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: name + " is the layer of an environment, which only berth env changes",
			Hint: "berth env show " + env}
	}
	if len(name) > 64 || !validName().MatchString(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an overlay", name),
			Hint: "use lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return nil
}

// markVersion is the schema of mark.json.
const markVersion = 1

// ReadMark returns the mark of the overlay in dir, or nil when there is none.
func ReadMark(dir string) (*Mark, error) {
	if err := plainDir(dir, "overlay "+filepath.Base(dir)); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fileMark)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, syscall.ELOOP) {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the overlay's mark " + path + " is a symbolic link, which berth does not make",
			Hint: "look who made it; use another overlay name"}
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, 1<<20))
		_ = f.Close()
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the mark of overlay " + filepath.Base(dir), Err: err}
	}
	var m Mark
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the overlay's mark " + path + " cannot be read", Err: err,
			Hint: "restore it, or use another overlay name"}
	}
	if m.Version > markVersion {
		return nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("overlay %s was made by a newer berth (schema %d)", filepath.Base(dir), m.Version),
			Hint: "use that version of berth, or another overlay name"}
	}
	return &m, nil
}

// headSize is how much of a SIF without a UUID is read in place of it: the
// header, the descriptors, and the beginning of the file system, whose own
// header holds its size and the time it was made.
const headSize = 128 << 10

// ImageID identifies the SIF at path by the UUID in its header. Each build of an
// image gets a new one, and copies keep it. A SIF built without one is
// identified by the beginning of its content. A file that is no SIF is refused:
// it cannot be the lower layer of a container.
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
	head, err := siffile.ReadHeader(f)
	if errors.Is(err, siffile.ErrNoSIF) {
		return "", no
	} else if err != nil {
		return "", err
	}
	if head.ID != "" {
		return "sif:" + head.ID, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, headSize))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sif-head:" + hex.EncodeToString(sum[:16]), nil
}

// LowerID identifies what a layer is over: it is [DirID] of a directory, and
// [ImageID] of anything else.
func LowerID(path string) (string, error) {
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return DirID(path)
	}
	return ImageID(path)
}

// IsUnpacked tells whether a directory looks like an unpacked image: it is the
// root directory of a system, or of one program.
func IsUnpacked(dir string) bool {
	has := func(name string) bool {
		fi, err := os.Lstat(filepath.Join(dir, name))
		return err == nil && (fi.IsDir() || fi.Mode()&fs.ModeSymlink != 0)
	}
	return has(jobs.ImageDir) || has("etc") && (has("usr") || has("bin"))
}

// PrefixDir begins what [DirID] returns.
const PrefixDir = "dir:"

// DirID identifies the user's unpacked image at path, by what changes when it
// is unpacked again. Its owner must leave its files unchanged.
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
	return PrefixDir + hex.EncodeToString(sum[:16]), nil
}
