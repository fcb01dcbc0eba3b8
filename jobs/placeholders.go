package jobs

import "strings"

// Placeholders that stand in a container's argv until the runner knows their
// values on the node. It changes nothing else.
const (
	// Whole words.
	PlaceholderImage   = "{image}"
	PlaceholderOverlay = "{overlay}"
	PlaceholderScratch = "{scratch}"
	// Sources of mounts.
	PlaceholderEmpty = "{empty}" // an empty read-only directory
	// What stands over the lists of kernel keys and over the tree of cgroups. Not
	// every kernel has either: without a value the mount is left out.
	PlaceholderKeys    = "{keys}"
	PlaceholderCgroups = "{cgroups}"
	PlaceholderWork    = "{work}" // the workspace
	// Either.
	PlaceholderNode = "{node}" // the program for the nodes, on the node's own disk
)

// Placeholders are the values of placeholders on one machine.
type Placeholders map[string]string

// mountHead is what a word of [Mount.Word] begins with.
const mountHead = "type=bind,source="

// Fill returns argv with the values in place of the placeholders. Where that of
// the source of a mount is "", the mount's word and the flag before it are left
// out.
func (h Placeholders) Fill(argv []string) []string {
	out := make([]string, 0, len(argv))
	for _, w := range argv {
		if v, ok := h[w]; ok {
			out = append(out, v)
			continue
		}
		rest, isMount := strings.CutPrefix(w, mountHead)
		hole, after, more := strings.Cut(rest, ",")
		v, ok := h[hole]
		switch {
		case !isMount || !more || !ok:
			out = append(out, w)
		case v != "":
			out = append(out, "type=bind,"+field("source="+v)+","+after)
		default:
			out = out[:len(out)-1]
		}
	}
	return out
}

// field quotes a field of CSV where that is needed, as [Mount.Word] does.
func field(s string) string {
	if !strings.ContainsAny(s, ",\"\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

// isSourceHole tells whether the source of a mount is filled in on the node.
func isSourceHole(source string) bool {
	switch source {
	case PlaceholderEmpty, PlaceholderKeys, PlaceholderCgroups, PlaceholderWork, PlaceholderNode:
		return true
	}
	return false
}
