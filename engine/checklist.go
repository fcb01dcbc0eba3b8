package engine

import (
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// CheckItem is one point of a task's checklist.
type CheckItem struct {
	Text    string `json:"text"` // of one line, printable
	Line    int    `json:"line"` // of the prompt, from 1
	Checked bool   `json:"checked,omitempty"`
}

// Bounds of a checklist: what is above them is left out.
const (
	maxCheckItems = 200
	maxCheckText  = 1000 // bytes
)

var (
	checkHeading = pattern.Lazy(`^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$`)
	checkPoint   = pattern.Lazy(`^[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?:\[([ xX])\][ \t]+)?(.*)$`)
	checkFence   = pattern.Lazy("^ {0,3}(```+|~~~+)")
)

// Checklist returns what a prompt says of when its task is done: the points of the
// Markdown lists under a heading "Done when", of any level. It ends at the next heading
// that is not below it, and at [NotesHeading]. What is indented below a point, or follows it without a blank
// line, is part of it.
func Checklist(prompt string) (out []CheckItem) {
	level, open, fence := 0, false, ""
	n := 0
	for line := range strings.Lines(prompt) {
		n++
		line = strings.TrimRight(line, " \t\r\n")
		if m := checkFence().FindStringSubmatch(line); m != nil && (fence == "" || strings.HasPrefix(m[1], fence)) {
			if open = false; fence == "" {
				fence = m[1]
			} else {
				fence = ""
			}
			continue
		}
		if fence != "" {
			continue
		}
		if m := checkHeading().FindStringSubmatch(line); m != nil {
			open = false
			switch is := strings.EqualFold(strings.TrimRight(m[2], ": \t"), "done when"); {
			case is:
				level = len(m[1])
			case len(m[1]) <= level || m[2] == NotesHeading:
				level = 0
			}
			continue
		}
		point := checkPoint().FindStringSubmatch(line)
		switch {
		case level == 0:
		case point != nil && len(out) < maxCheckItems:
			out = append(out, CheckItem{Text: checkText(point[2]), Line: n, Checked: point[1] != "" && point[1] != " "})
			open = true
		case point != nil || line == "":
			open = false
		case open:
			last := &out[len(out)-1]
			last.Text = checkText(last.Text + " " + strings.TrimSpace(line))
		}
	}
	return out
}

// checkText is a point as people may see it.
func checkText(s string) string {
	if len(s) > maxCheckText {
		s = strings.ToValidUTF8(s[:maxCheckText], "") + "..."
	}
	return jobs.Printable(strings.TrimSpace(s))
}
