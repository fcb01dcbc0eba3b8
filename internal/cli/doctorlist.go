package cli

import (
	"fmt"
	"os"
	"strings"

	"berth/internal/doctor"
	"berth/jobs"

	"golang.org/x/term"
)

// Widths of a list of findings on a terminal.
const (
	usualWidth, leastWidth, mostWidth = 80, 40, 120

	findingIndent = "        "
)

// doctorList prints findings for people: first what has to be repaired, then what
// could be better, each with what to do, then the rest.
func (a *app) doctorList(lines []doctor.Line) error {
	var first, then, rest []doctor.Line
	for _, l := range lines {
		switch {
		case l.Status == doctor.Fail && l.Configured:
			first = append(first, l)
		case l.Status == doctor.Fail, l.Status == doctor.Warn:
			then = append(then, l)
		default:
			rest = append(rest, l)
		}
	}
	var b strings.Builder
	for _, part := range []struct {
		title string
		lines []doctor.Line
	}{{"TO DO FIRST: berth is to use this, and it fails", first}, {"TO DO, where it matters to you", then}, {"THE REST", rest}} {
		if len(part.lines) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(part.title + "\n")
		for _, l := range part.lines {
			where := ""
			if l.Where != "" && l.Where != "here" && l.Where != "both" {
				where = " (" + l.Where + ")"
			}
			text := fmt.Sprintf("  %-5s %s%s: %s", l.Status, l.Subject, where, l.Why)
			wrap(&b, jobs.Printable(text), findingIndent, a.width())
			if l.Do != "" {
				wrap(&b, jobs.Printable(findingIndent+"-> "+l.Do), findingIndent+"   ", a.width())
			}
		}
	}
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}

// wrap writes a text in lines of at most width characters; those behind the first
// begin with an indent. A word that is longer has a line of its own.
func wrap(b *strings.Builder, text, indent string, width int) {
	body := strings.TrimLeft(text, " ")
	line := text[:len(text)-len(body)]
	used, empty := len([]rune(line)), true
	b.WriteString(line)
	for i, word := range strings.Split(body, " ") {
		n := len([]rune(word))
		if !empty && used+1+n > width {
			b.WriteString("\n" + indent)
			used, empty = len(indent), true
		}
		if i > 0 && !empty {
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used, empty = used+n, false
	}
	b.WriteByte('\n')
}

// width is that of the terminal, within bounds.
func (a *app) width() int {
	if a.columns > 0 {
		return max(leastWidth, min(a.columns, mostWidth))
	}
	f, ok := a.stdout.(*os.File)
	if !ok {
		return usualWidth
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns == 0 {
		return usualWidth
	}
	return max(leastWidth, min(columns, mostWidth))
}
