package guest

import (
	"regexp"
	"strings"
)

// globPattern turns a pattern for names into an expression for the whole name:
// * and ? stay within a directory, ** does not, [abc] is one of them, and
// {a,b} either.
func globPattern(glob string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	braces := 0
	for i := 0; i < len(glob); i++ {
		c := glob[i]
		switch {
		case strings.HasPrefix(glob[i:], "**/"):
			b.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(glob[i:], "**"):
			b.WriteString(`.*`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '{':
			braces++
			b.WriteString(`(?:`)
		case c == '}' && braces > 0:
			braces--
			b.WriteByte(')')
		case c == ',' && braces > 0:
			b.WriteByte('|')
		case c == '[':
			if n := strings.IndexByte(glob[i+1:], ']'); n > 0 {
				set := strings.ReplaceAll(glob[i+1:i+1+n], `\`, `\\`)
				if set[0] == '!' {
					set = "^" + set[1:]
				}
				b.WriteString("[" + strings.ReplaceAll(set, "[", `\[`) + "]")
				i += n + 1
				break
			}
			b.WriteString(`\[`)
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		case c >= 0x80:
			b.WriteByte(c) // a part of a character
		default:
			b.WriteString(regexp.QuoteMeta(string(rune(c))))
		}
	}
	b.WriteString(`\z`)
	return regexp.Compile(b.String())
}

// nameFilter picks files by a pattern: with a slash in it for the path below
// the directory that is looked through, else for the last name.
type nameFilter struct {
	re   *regexp.Regexp
	path bool
}

// newNameFilter returns a filter that takes everything when glob is empty.
func newNameFilter(glob string) (nameFilter, error) {
	if glob == "" {
		return nameFilter{}, nil
	}
	re, err := globPattern(strings.TrimPrefix(glob, "./"))
	return nameFilter{re, strings.Contains(glob, "/")}, err
}

func (f nameFilter) takes(path string) bool {
	if f.re == nil {
		return true
	}
	if !f.path {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	return f.re.MatchString(path)
}
