package jobs

import (
	"encoding/csv"
	"fmt"
	"path"
	"strings"
)

// Word is the value of --mount for the container programs, all of which read
// its fields as CSV: quotes, commas and colons in paths arrive as they are.
func (m Mount) Word() (string, error) {
	for i, s := range []string{m.Source, m.Destination} {
		if err := CheckText(fmt.Sprintf("the mount path %q", s), s); err != nil {
			return "", err
		}
		if !path.IsAbs(s) && !(i == 0 && isSourceHole(s)) {
			return "", &Error{Kind: KindUsage, Msg: fmt.Sprintf("the mount path %q is not absolute", s)}
		}
	}
	// [Holes.Fill] looks for the first two.
	fields := []string{"type=bind", "source=" + m.Source, "destination=" + m.Destination}
	if !m.Writable {
		fields = append(fields, "readonly")
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := w.Write(fields); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n"), w.Error()
}
