package workspace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"berth/jobs"
)

// ManifestVersion is the schema version of the manifest.
const ManifestVersion = 1

// Identity is an author and committer.
type Identity struct{ Name, Email string }

var defaultIdentity = Identity{Name: "berth", Email: "berth@localhost"}

// Limits of a result; zero fields mean the defaults. What exceeds them is left
// out and reported, the smaller parts of the tree (outer directories) first
// being kept.
type Limits struct {
	FileBytes  int64 // of one file; default 100 MiB
	TotalBytes int64 // of all new and changed files; default 1 GiB
	NewFiles   int   // default 50,000
}

// ResultLimits are the limits of a job's result.
func ResultLimits(l jobs.ResultLimits) Limits {
	return Limits{FileBytes: int64(l.BranchFile), TotalBytes: int64(l.BranchSize), NewFiles: l.BranchFiles}
}

func (l Limits) orDefaults() Limits {
	if l.FileBytes == 0 {
		l.FileBytes = 100 << 20
	}
	if l.TotalBytes == 0 {
		l.TotalBytes = 1 << 30
	}
	if l.NewFiles == 0 {
		l.NewFiles = 50_000
	}
	return l
}

// CollectOptions say how a result is made.
type CollectOptions struct {
	Branch  string    // short name of the branch in the bundle; required
	Message string    // of the commit
	Author  Identity  // default berth <berth@localhost>
	Time    time.Time // of the commit; default now. With the same time, the same tree gives the same commit
	Scope   Scope     // the zero Scope allows everything
	Limits  Limits
	// Artifacts are patterns as those of a [Scope]: new files that they cover come
	// back as artifacts and not on the branch. A tracked file stays tracked.
	Artifacts []string
	// Ignore is what is ignored besides what the repository says, as in a
	// .gitignore and below it; see [Git.GlobalIgnore].
	Ignore string
	// Bundle makes it a checkpoint: the work tree may be written to meanwhile,
	// and the commit goes into the file of this name in the attempt's directory,
	// without a diff and a manifest. A file that grows counts as large as it was
	// when it was seen; what else changes while it is read is [ErrChanging].
	Bundle string
	lend   string // the directory, of [Git.Lend]
}

// Status says what happened to a path.
type Status string

// The statuses of a [Change].
const (
	Added       Status = "added"
	Modified    Status = "modified"
	Deleted     Status = "deleted"
	Renamed     Status = "renamed"
	TypeChanged Status = "type-changed" // between file, symbolic link and submodule
)

// Change is one changed path.
type Change struct {
	Path       Path   `json:"path"`
	OldPath    Path   `json:"old_path,omitempty"` // of a rename
	Status     Status `json:"status"`
	Mode       string `json:"mode,omitempty"`     // git's: 100644, 100755, 120000; empty when deleted
	OldMode    string `json:"old_mode,omitempty"` // empty when added
	SizeBytes  int64  `json:"size_bytes"`
	Insertions int    `json:"insertions"` // lines
	Deletions  int    `json:"deletions"`
	Binary     bool   `json:"binary,omitempty"`
	// Target is what a symbolic link says, and Escapes whether that is
	// outside the tree, judged by the words alone.
	Target     Path `json:"target,omitempty"`
	Escapes    bool `json:"escapes,omitempty"`
	OutOfScope bool `json:"out_of_scope,omitempty"`

	id string // of the new blob
}

// Result is what a task changed; the manifest is its JSON.
type Result struct {
	SchemaVersion int    `json:"schema_version"`
	Base          string `json:"base"`
	// Commit is the result commit, whose only parent is Base; empty when
	// nothing changed.
	Commit     string   `json:"commit,omitempty"`
	Tree       string   `json:"tree"`
	Branch     string   `json:"branch"`
	Changed    bool     `json:"changed"`
	Files      []Change `json:"files"`
	Insertions int      `json:"insertions"`
	Deletions  int      `json:"deletions"`
	// OutOfScope lists the paths that the scope does not cover, both names of
	// a rename.
	OutOfScope []Path `json:"out_of_scope"`
	// LookAt is what programs of whoever uses the change would obey or run, and
	// links that lead out, printable and bounded.
	LookAt  []string  `json:"look_at,omitempty"`
	Skipped []Skipped `json:"skipped"`
	// Apart counts new files that are artifacts, and so not in Files.
	Apart int `json:"apart,omitempty"`
	// SkippedMore counts what was left out beyond the list.
	SkippedMore int `json:"skipped_more,omitempty"`
	// SkippedKinds counts all that was left out, listed or not.
	SkippedKinds map[Kind]int `json:"skipped_kinds,omitempty"`
	// Omitted is the same for the job's record.
	Omitted []jobs.Omission `json:"-"`
}

// manifest is the JSON of a result, with nothing in it that is not printable.
func (r Result) manifest() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return escapeUnprintable(b.Bytes()), nil
}

// escapeUnprintable escapes what a terminal would not show, or would obey, in
// the strings of a JSON text: people read it there, and a task names files.
// Outside of strings encoding/json writes nothing but ASCII.
func escapeUnprintable(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		switch {
		case r == '\n' || jobs.Shows(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}
