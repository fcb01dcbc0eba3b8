package workspace

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Scope is a set of path patterns. The zero Scope covers every path.
//
// A pattern is matched against whole components of a path, as bytes and with
// case; dots at the start of a name are nothing special.
//
//   - It covers what it matches and everything below: "src" covers "src" and
//     "src/a/b", not "src2".
//   - "*", "?" and "[a-z]" ("[!a-z]" for the opposite) match within one
//     component, "**" as a whole component matches any number of them, also
//     none. A backslash takes the special meaning from the next character.
//   - A pattern is relative to the top of the work tree. The exception is one
//     with a "*", "?" or "[" and no slash: "*.py" covers such names in every
//     directory. "/*.py" covers those at the top only. (A plain "src" is the
//     one at the top; "**/src" is one anywhere. Here .gitignore differs: a
//     scope should not grow by accident.)
//   - With "/" or "/**" at its end it covers what is below, not a file of that
//     name: "docs/" covers "docs/a", and so does "docs/**".
//   - "." and "**" cover everything.
//
// Not understood, and refused so that nothing is silently read otherwise than
// it was meant: "!" at the start, braces, components "." and "..", an empty
// pattern. A backslash makes "!" and "{" ordinary.
type Scope struct {
	patterns []pattern
}

type pattern struct {
	parts []string // of path.Match, or "**"
	below bool     // only what is below a match
}

const anyDepth = "**"

// ParseScope reads patterns; none give the zero Scope.
func ParseScope(patterns []string) (Scope, error) {
	var s Scope
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			return Scope{}, err
		}
		s.patterns = append(s.patterns, p)
	}
	return s, nil
}

func parsePattern(text string) (pattern, error) {
	bad := func(why, tip string) error {
		return &Error{Kind: ErrInvalid, Msg: fmt.Sprintf("path pattern %q: %s", text, why), Tip: tip}
	}
	rest := text
	switch {
	case rest == "." || rest == "./" || rest == "/":
		return pattern{parts: []string{anyDepth}}, nil
	case rest == "":
		return pattern{}, bad("is empty", `"." covers everything`)
	case strings.ContainsRune(rest, 0):
		return pattern{}, bad("has a NUL byte", "")
	case rest[0] == '!':
		return pattern{}, bad("negation is not supported", `list what is covered; \! is an ordinary !`)
	}
	rooted := strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "./")
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "."), "/")
	if !rooted {
		rest = text
	}
	var p pattern
	if cut, ok := strings.CutSuffix(rest, "/"); ok {
		p.below, rest = true, cut
	}
	for part := range strings.SplitSeq(rest, "/") {
		switch part {
		case "", ".", "..":
			return pattern{}, bad(fmt.Sprintf("has the component %q", part), "write the path from the top of the repository")
		case anyDepth:
			if len(p.parts) == 0 || p.parts[len(p.parts)-1] != anyDepth {
				p.parts = append(p.parts, anyDepth)
			}
			continue
		}
		if hasUnescaped(part, "{}") {
			return pattern{}, bad("braces are not supported", `write one pattern for each; \{ is an ordinary {`)
		}
		part = negated(part)
		if _, err := path.Match(part, ""); err != nil {
			return pattern{}, bad("has an unfinished [ or \\", "")
		}
		p.parts = append(p.parts, part)
	}
	glob := slices.ContainsFunc(p.parts, func(part string) bool { return part == anyDepth || hasUnescaped(part, "*?[") })
	if glob && !rooted && !strings.Contains(rest, "/") && p.parts[0] != anyDepth {
		p.parts = append([]string{anyDepth}, p.parts...)
	}
	if last := len(p.parts) - 1; last > 0 && p.parts[last] == anyDepth {
		p.parts, p.below = p.parts[:last], true
	}
	return p, nil
}

// Covers says whether the path, relative to the top and with slashes, is
// covered.
func (s Scope) Covers(name string) bool {
	if len(s.patterns) == 0 {
		return true
	}
	parts := strings.Split(name, "/")
	return slices.ContainsFunc(s.patterns, func(p pattern) bool { return p.covers(parts) })
}

// covers says whether the pattern matches the path or a directory above it.
// can[i] says that the first i parts of the pattern match what was read so
// far, so the time is bounded by pattern times path whatever the pattern is.
func (p pattern) covers(name []string) bool {
	can := make([]bool, len(p.parts)+1)
	skipEmpty := func() {
		for i, part := range p.parts {
			if can[i] && part == anyDepth {
				can[i+1] = true
			}
		}
	}
	can[0] = true
	skipEmpty()
	for n, component := range name {
		next := make([]bool, len(can))
		for i, part := range p.parts {
			switch {
			case !can[i]:
			case part == anyDepth:
				next[i] = true
			default:
				if ok, err := path.Match(part, component); ok && err == nil {
					next[i+1] = true
				}
			}
		}
		can = next
		skipEmpty()
		// A match of a directory covers what is below it.
		if can[len(p.parts)] && (!p.below || n < len(name)-1) {
			return true
		}
	}
	return false
}

// Contains says whether the pattern covers nothing that the scope does not, and names no
// control file that the scope does not name. It is certain where it says so: of what only
// several patterns together cover, and of most wildcards, it says no.
func (s Scope) Contains(text string) (bool, error) {
	q, err := parsePattern(text)
	if err != nil {
		return false, err
	}
	name := NamesControl(text)
	if len(s.patterns) == 0 {
		return name == "", nil
	}
	return slices.ContainsFunc(s.patterns, func(p pattern) bool { return p.contains(q) && (name == "" || p.says(name)) }), nil
}

// says reports whether a part of the pattern is a name without a wildcard, in any case.
func (p pattern) says(name string) bool {
	return slices.ContainsFunc(p.parts, func(part string) bool { return !hasUnescaped(part, "*?[") && strings.EqualFold(plain(part), name) })
}

// contains compares one pattern with another one.
func (p pattern) contains(q pattern) bool {
	// What ends alike, below any directory or none.
	rest, anywhere := p.parts, p.parts[0] == anyDepth
	if anywhere {
		rest = rest[1:]
	}
	if n := len(q.parts) - len(rest); n >= 0 && (anywhere || n == 0) && slices.Equal(q.parts[n:], rest) && (q.below || !p.below) {
		return true
	}
	// What is below a path without wildcards.
	var at []string
	for _, part := range q.parts {
		if part == anyDepth || hasUnescaped(part, "*?[") {
			break
		}
		at = append(at, plain(part))
	}
	if len(at) == len(q.parts) && !q.below {
		return p.covers(at)
	}
	p.below = false // all of it is below
	return len(at) > 0 && p.covers(at)
}

// plain takes the backslashes out of a part without wildcards.
func plain(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// reaches says whether the pattern may cover something below the directory.
func (p pattern) reaches(dir []string) bool {
	if p.covers(append(slices.Clone(dir), "x")) {
		return true
	}
	for i, part := range p.parts {
		if part == anyDepth {
			return true
		}
		if i == len(dir) {
			return true
		}
		if ok, err := path.Match(part, dir[i]); !ok || err != nil {
			return false
		}
	}
	return false
}

// hasUnescaped says whether one of the characters stands without a backslash.
func hasUnescaped(s, chars string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.IndexByte(chars, s[i]) >= 0 {
			return true
		}
	}
	return false
}

// negated writes [!a] the way path.Match wants it, [^a].
func negated(s string) string {
	b := []byte(s)
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' {
			i++
		} else if b[i] == '[' && i+1 < len(b) && b[i+1] == '!' {
			b[i+1] = '^'
		}
	}
	return string(b)
}
