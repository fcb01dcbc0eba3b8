package finding

import (
	"strconv"
	"strings"
)

// Flaw is a known weakness of a program: what a site should know about the
// version that it runs.
type Flaw struct {
	ID   string
	Date string // of the release that repairs it
	What string
	// Fixed are the first sound versions, one for each release that got one,
	// oldest first. A release that is older than all of them is affected, a
	// newer one is not.
	Fixed  []string
	Since  string // the first affected version; "" is the first of all
	Setuid bool   // only where the program is setuid root
}

// Flaws is one warning for each flaw of a table that a version has, or nothing.
func Flaws(table []Flaw, subject, version string, setuid bool) []Finding {
	var out []Finding
	for _, f := range table {
		if f.Setuid && !setuid || !affected(version, f.Since, f.Fixed) {
			continue
		}
		when := ""
		if f.Date != "" {
			when = " (" + f.Date + ")"
		}
		out = append(out, Finding{Status: Warn, Subject: subject, Why: version + " is older than the fix of " + f.ID + when + ": " + f.What,
			Do: "ask for " + strings.Join(f.Fixed, ", ") + " or newer, unless the package of your distribution has the fix"})
	}
	return out
}

// affected reports whether a version is older than the first fixed version of its
// release. A release without a fixed version is unaffected if it is newer than
// all releases that have one. An unknown version does not count as affected.
func affected(version, since string, fixed []string) bool {
	v, ok := Numbers(version)
	if !ok {
		return false
	}
	if first, ok := Numbers(since); ok && Less(v, first) {
		return false
	}
	for _, f := range fixed {
		if n, _ := Numbers(f); n[0] == v[0] && n[1] == v[1] {
			return Less(v, n)
		}
	}
	newest, _ := Numbers(fixed[len(fixed)-1])
	return Less(v, newest)
}

// Numbers reads "24.11.5-2" as 24, 11, 5; a missing third one is 0.
func Numbers(version string) (n [3]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return n, false
	}
	for i, p := range parts {
		end := strings.IndexFunc(p, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			p = p[:end]
		}
		x, err := strconv.Atoi(p)
		if err != nil && i < 2 {
			return n, false
		}
		n[i] = x
	}
	return n, true
}

// Less tells whether a version is older than another one.
func Less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
