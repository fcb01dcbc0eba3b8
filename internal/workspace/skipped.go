package workspace

import (
	"fmt"
	"strings"

	"berth/jobs"
)

// Kind says what left a path out.
type Kind string

// The kinds of what is left out.
const (
	TooMany    Kind = "too_many"   // more new files than the limit
	TooLarge   Kind = "too_large"  // over the limit of one file, or of all together
	Unreadable Kind = "unreadable" // the file system did not let berth read it
	Refused    Kind = "refused"    // git cannot hold it, or would obey it
	NoContent  Kind = "no_content" // a FIFO or the like, or what is another repository's own
	Link       Kind = "link"       // an artifact that is a symbolic link to what is none
	Beside     Kind = "beside"     // in the directory of the other work trees, and of none of them
	TooDeep    Kind = "too_deep"   // below too many directories, or behind too many entries
	NoSpace    Kind = "no_space"   // there was no space for a copy
	NoTime     Kind = "no_time"    // the time was up, or the end was asked for
)

var kindWords = []struct {
	kind  Kind
	words string
}{
	{TooMany, "beyond the limit on files"},
	{TooLarge, "larger than the limits allow"},
	{Unreadable, "that cannot be read"},
	{Refused, "that git cannot hold"},
	{NoContent, "that are no files of the workspace"},
	{Link, "that are symbolic links to what is no artifact"},
	{Beside, "in " + jobs.FurtherDir + " that are of no workspace"},
	{TooDeep, "too deep to be looked at"},
	{NoSpace, "for which there was no space"},
	{NoTime, "for which there was no time"},
}

// maxSkipped bounds the list of what was left out; the rest is counted.
const maxSkipped = 1000

// Skipped is a path that was left out of the result. When the base has it,
// the base's version stays if the path could not be read, was too large or was
// refused by git, and is deleted if something that is no file is in its place.
type Skipped struct {
	Path   Path   `json:"path"`
	Kind   Kind   `json:"kind,omitempty"`
	Reason string `json:"reason"`
}

// omissions are what is left out, and why.
type omissions struct {
	skipped  []Skipped
	unlisted int // more skipped ones
	kinds    map[Kind]int
	sizes    map[Kind]int64
	names    map[Kind][]string // the first of each
}

// maxNames bounds the names of an omission of one kind.
const maxNames = 5

func (o *omissions) skip(p string, kind Kind, why string) { o.skipFile(p, 0, kind, why) }

// skipFile leaves out a file whose size is known.
func (o *omissions) skipFile(p string, size int64, kind Kind, why string) {
	o.count(kind, 1, size)
	if len(o.names[kind]) < maxNames {
		if o.names == nil {
			o.names = map[Kind][]string{}
		}
		o.names[kind] = append(o.names[kind], Path(p).Printable())
	}
	if len(o.skipped) == maxSkipped {
		o.unlisted++
		return
	}
	o.skipped = append(o.skipped, Skipped{Path: Path(p), Kind: kind, Reason: why})
}

func (o *omissions) count(kind Kind, n int, size int64) {
	if o.kinds == nil {
		o.kinds, o.sizes = map[Kind]int{}, map[Kind]int64{}
	}
	o.kinds[kind] += n
	o.sizes[kind] += size
}

// omitted is what was left out, by its kinds.
func (o *omissions) omitted(of string) (out []jobs.Omission) {
	for _, k := range kindWords {
		if n := o.kinds[k.kind]; n > 0 {
			out = append(out, jobs.Omission{Of: of, Kind: string(k.kind), Why: k.words, Paths: n, Bytes: jobs.Bytes(o.sizes[k.kind]),
				Names: o.names[k.kind], Told: k.kind == NoContent})
		}
	}
	return out
}

// LeftOut says in a few words how much was left out and why, as in "3 paths: 2
// beyond the limit on new files, 1 that git cannot hold"; "" when nothing was.
func (r Result) LeftOut() string {
	all := len(r.Skipped) + r.SkippedMore
	if all == 0 {
		return ""
	}
	paths := "1 path"
	if all > 1 {
		paths = fmt.Sprintf("%d paths", all)
	}
	var parts []string
	for _, k := range kindWords {
		switch n := r.SkippedKinds[k.kind]; n {
		case 0:
		case all:
			return paths + " " + k.words
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, k.words))
		}
	}
	if len(parts) == 0 { // of a manifest that does not tell
		return paths
	}
	return paths + ": " + strings.Join(parts, ", ")
}
