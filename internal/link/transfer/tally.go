package transfer

import (
	"fmt"
	"strconv"
)

// Tally is what was packed or unpacked.
type Tally struct {
	Entries int64 // files, directories and links
	Bytes   int64 // in files
	// Special counts what no stream carries: sockets, devices, pipes, and the
	// kernel's own file systems, such as /proc.
	Special int64
	// Unreadable counts what could not be read, or is too deep; the copy is
	// then not complete.
	Unreadable int64
	// Shrunk counts files that became shorter while they were read; zeros
	// stand for the rest.
	Shrunk int64

	special, unreadable, shrunk string // the first of each
}

// note counts something and remembers the first.
func note(count *int64, first *string, path string) {
	if *count == 0 {
		*first = path
	}
	*count++
}

// Notes says in sentences what was not carried as it was; none is the rule.
func (t *Tally) Notes() (out []string) {
	for _, c := range []struct {
		count     int64
		first     string
		one, many string
	}{
		{t.Special, t.special, "a socket, device, pipe or kernel file system was left out",
			"%d sockets, devices, pipes or kernel file systems were left out"},
		{t.Unreadable, t.unreadable, "one file or directory could not be read and is missing",
			"%d files or directories could not be read and are missing"},
		{t.Shrunk, t.shrunk, "one file became shorter while it was copied and was filled up with zeros",
			"%d files became shorter while they were copied and were filled up with zeros"},
	} {
		switch {
		case c.count == 1:
			out = append(out, c.one+": "+strconv.Quote(c.first))
		case c.count > 1:
			out = append(out, fmt.Sprintf(c.many, c.count)+", the first is "+strconv.Quote(c.first))
		}
	}
	return out
}
