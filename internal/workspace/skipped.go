package workspace

import (
	"fmt"
	"strings"
)

// Kind says what left a path out.
type Kind string

// The kinds of what is left out.
const (
	TooMany    Kind = "too_many"   // more new files than the limit
	TooLarge   Kind = "too_large"  // over the limit of one file, or of all together
	Unreadable Kind = "unreadable" // the file system did not let berth read it
	Refused    Kind = "refused"    // git cannot hold it, or would obey it
)

var kindWords = []struct {
	kind  Kind
	words string
}{
	{TooMany, "beyond the limit on new files"},
	{TooLarge, "larger than the limits allow"},
	{Unreadable, "that cannot be read"},
	{Refused, "that git cannot hold"},
}

// maxSkipped bounds the list of what was left out; the rest is counted.
const maxSkipped = 1000

// Skipped is a path that was left out of the result. When the base has it,
// the base's version stays if the path could not be read, was too large or was
// refused by git, and is deleted if something that is no file is in its place.
type Skipped struct {
	Path   Path   `json:"path"`
	Reason string `json:"reason"`
}

// omissions are what is left out, and why.
type omissions struct {
	skipped  []Skipped
	unlisted int // more skipped ones
	kinds    map[Kind]int
}

func (o *omissions) skip(p string, kind Kind, why string) {
	o.count(kind, 1)
	if len(o.skipped) == maxSkipped {
		o.unlisted++
		return
	}
	o.skipped = append(o.skipped, Skipped{Path: Path(p), Reason: why})
}

func (o *omissions) count(kind Kind, n int) {
	if o.kinds == nil {
		o.kinds = map[Kind]int{}
	}
	o.kinds[kind] += n
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
