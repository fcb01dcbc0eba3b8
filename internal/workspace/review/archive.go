package review

import (
	"archive/tar"
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
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/workspace"
	"berth/jobs"
)

// What a file of berth review export holds.
const (
	KindResult  = "result"  // what another user decides on
	KindVerdict = "verdict" // what that user has decided
)

// Names of what is in such a file, beside [workspace.BundleFile].
const (
	SentName       = "review.json"
	PromptName     = "prompt.md"
	TranscriptName = "transcript.jsonl"
	AnswerName     = "verdict.json"
)

const (
	// archiveVersion is the newest schema: 2 has the bundles of several repositories.
	archiveVersion = 2
	manifestName   = "manifest.json"
	maxManifest    = 64 << 10
	maxFiles       = 4 + jobs.MaxFurther
	// maxTail is what may follow the last entry: the end of a tar, and its padding.
	maxTail = 64 << 10
)

// bounds are the names that a file of each kind may hold, and the most bytes of each.
var bounds = map[string]map[string]int64{
	KindResult:  {SentName: 4 << 20, PromptName: 16 << 20, workspace.BundleFile: 2 << 30, TranscriptName: 256 << 20},
	KindVerdict: {AnswerName: 4 << 20},
}

// The bundle of the workspace NAME beside the first one that has changed is furtherStart + NAME + furtherEnd.
const furtherStart, furtherEnd = "repo-", ".bundle"

// BundleName is the name of the bundle of a workspace beside the first one that has changed.
func BundleName(workspace string) string { return furtherStart + workspace + furtherEnd }

// bundleOf is the workspace of such a name; "" is that it is none.
func bundleOf(name string) string {
	of, start := strings.CutPrefix(name, furtherStart)
	of, end := strings.CutSuffix(of, furtherEnd)
	if !start || !end || jobs.CheckWorkspaceName(of) != nil {
		return ""
	}
	return of
}

// bound is the most bytes that a file of this name may have in an archive of a kind, and
// whether there may be one.
func bound(kind, name string) (int64, bool) {
	if kind == KindResult && bundleOf(name) != "" {
		name = workspace.BundleFile
	}
	most, known := bounds[kind][name]
	return most, known
}

// ErrArchive is that a file is none of berth review export, or not as it was written.
var ErrArchive = errors.New("not a file of berth review export")

func noArchive(path, format string, a ...any) error {
	return &workspace.Error{Kind: ErrArchive, Msg: fmt.Sprintf("%s: ", path) + fmt.Sprintf(format, a...),
		Tip: "have it written again: berth review export JOB FILE"}
}

// archived is what the manifest says of a file.
type archived struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// archive is the manifest, the first file of an archive.
type archive struct {
	Version int        `json:"version"`
	Kind    string     `json:"kind"`
	Files   []archived `json:"files"`
}

// Packed is a file of an archive: its name there, and the path that it is read from, or
// its content.
type Packed struct {
	Name string
	Path string
	Data []byte
}

func (p *Packed) open() (io.ReadCloser, error) {
	if p.Path == "" {
		return io.NopCloser(bytes.NewReader(p.Data)), nil
	}
	return disk.OpenRegular(p.Path)
}

// Pack writes an archive to a new file at path, of mode 0600, and returns its SHA-256. A
// file that is there is not replaced: the error is [fs.ErrExist].
func Pack(path, kind string, now time.Time, files []Packed) (sum string, err error) {
	m := archive{Version: 1, Kind: kind}
	for i := range files {
		f := &files[i]
		if bundleOf(f.Name) != "" {
			m.Version = archiveVersion
		}
		a, err := hashed(f)
		if err != nil {
			return "", err
		}
		if most, _ := bound(kind, f.Name); a.Bytes > most {
			return "", &workspace.Error{Kind: workspace.ErrInvalid,
				Msg: fmt.Sprintf("%s has %d bytes, and a file for a review takes %d of it", f.Name, a.Bytes, most)}
		}
		m.Files = append(m.Files, a)
	}
	head, err := json.MarshalIndent(&m, "", "  ")
	if err != nil {
		return "", err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(path)
		}
	}()
	whole := sha256.New()
	w := tar.NewWriter(io.MultiWriter(out, whole))
	put := func(name string, size int64, from io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: now.UTC().Truncate(time.Second)}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if n, err := io.Copy(w, from); err != nil || n != size {
			return errors.Join(fmt.Errorf("%s changed while it was read", name), err)
		}
		return nil
	}
	if err := put(manifestName, int64(len(head)), bytes.NewReader(head)); err != nil {
		return "", err
	}
	for i := range files {
		from, err := files[i].open()
		if err != nil {
			return "", err
		}
		err = errors.Join(put(files[i].Name, m.Files[i].Bytes, from), from.Close())
		if err != nil {
			return "", err
		}
	}
	err = errors.Join(w.Close(), out.Sync())
	return hex.EncodeToString(whole.Sum(nil)), err
}

func hashed(f *Packed) (archived, error) {
	from, err := f.open()
	if err != nil {
		return archived{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, from)
	return archived{Name: f.Name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, errors.Join(err, from.Close())
}

// Unpack reads the archive at path into the directory into, which is empty and private,
// and returns what kind it is and its SHA-256. All of it is held to be hostile: its names
// are those of a fixed list, each once and a regular file, no larger than that list says,
// and with the hash that its manifest has.
func Unpack(path, into string) (kind, sum string, err error) {
	f, err := disk.OpenRegular(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return "", "", err
		}
		return "", "", noArchive(path, "%v", err)
	}
	defer f.Close()
	whole := sha256.New()
	in := io.TeeReader(f, whole)
	r := tar.NewReader(in)
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Name != manifestName || h.Size > maxManifest {
		return "", "", noArchive(path, "it does not begin with %s", manifestName)
	}
	var m archive
	data, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	switch known := bounds[m.Kind]; {
	case err != nil:
		return "", "", noArchive(path, "its manifest cannot be read: %v", err)
	case m.Version > archiveVersion:
		return "", "", &workspace.Error{Kind: errors.ErrUnsupported, Msg: fmt.Sprintf("%s was written by a newer berth (schema %d)", path, m.Version),
			Tip: "use that version of berth"}
	case known == nil:
		return "", "", noArchive(path, "its kind is %q", m.Kind)
	}
	var seen []string
	for _, want := range m.Files {
		most, known := bound(m.Kind, want.Name)
		if !known || len(seen) > maxFiles || slices.Contains(seen, want.Name) || want.Bytes < 0 || want.Bytes > most {
			return "", "", noArchive(path, "its manifest names %.100q, with %d bytes", want.Name, want.Bytes)
		}
		seen = append(seen, want.Name)
		if h, err = r.Next(); err != nil || h.Typeflag != tar.TypeReg || h.Name != want.Name || h.Size != want.Bytes {
			return "", "", noArchive(path, "it has not the file %s that its manifest names", want.Name)
		}
		have, err := unpackOne(filepath.Join(into, want.Name), r)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = noArchive(path, "%s is cut off", want.Name)
			}
			return "", "", err
		}
		if have != want.SHA256 {
			return "", "", noArchive(path, "%s is not what its manifest says: it was changed", want.Name)
		}
	}
	if _, err = r.Next(); !errors.Is(err, io.EOF) {
		return "", "", noArchive(path, "it holds more than its manifest names")
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(in, maxTail+1)); err != nil || n > maxTail {
		return "", "", errors.Join(noArchive(path, "more follows its last file"), err)
	}
	return m.Kind, hex.EncodeToString(whole.Sum(nil)), nil
}

// unpackOne writes one file and returns its hash.
func unpackOne(to string, from io.Reader) (string, error) {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), from)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, out.Sync(), out.Close())
}
