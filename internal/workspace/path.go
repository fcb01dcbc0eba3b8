package workspace

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"berth/jobs"
)

// Path is a slash-separated path relative to the top of the work tree, as the
// bytes the file system has. As text (in JSON) it is written as it is when it
// is UTF-8; otherwise, or when it begins with a double quote, it is written
// the way git does: in double quotes, with octal escapes. So every path has
// one text form and no byte is lost.
type Path string

// MarshalText gives the text form.
func (p Path) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(p)) && !strings.HasPrefix(string(p), `"`) {
		return []byte(p), nil
	}
	return []byte(quote(string(p))), nil
}

// maxPrintable bounds one name that is shown to people, in bytes.
const maxPrintable = 200

// Printable is the path for people: quoted when something in it is not
// printable, and cut when it is long.
func (p Path) Printable() string {
	s := string(p)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !jobs.Shows(r) }) {
		s = quote(s)
	}
	if len(s) > maxPrintable {
		s = strings.ToValidUTF8(s[:maxPrintable-3], "") + "..."
	}
	return s
}

// UnmarshalText reads the text form.
func (p *Path) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.HasPrefix(s, `"`) {
		var err error
		if s, err = unquote(s); err != nil {
			return err
		}
	}
	*p = Path(s)
	return nil
}

// quote writes s as git's C-style quoted string. Everything that is not
// printable ASCII is escaped in octal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// unquote reads what quote writes.
func unquote(s string) (string, error) {
	bad := fmt.Errorf("badly quoted path %q", s)
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", bad
	}
	body := s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		switch {
		case body[i] == '"':
			return "", bad
		case body[i] != '\\':
			b.WriteByte(body[i])
		case i+1 < len(body) && (body[i+1] == '"' || body[i+1] == '\\'):
			b.WriteByte(body[i+1])
			i++
		case i+3 < len(body):
			n := 0
			for _, d := range []byte(body[i+1 : i+4]) {
				if d < '0' || d > '7' {
					return "", bad
				}
				n = n*8 + int(d-'0')
			}
			if n > 0xff {
				return "", bad
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			return "", bad
		}
	}
	return b.String(), nil
}

// escapes says whether the symbolic link at p with this target points out of
// the tree, judged by the words alone: nothing is looked up.
func escapes(p, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	to := path.Join(path.Dir(p), target)
	return to == ".." || strings.HasPrefix(to, "../")
}
