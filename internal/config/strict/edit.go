package strict

import (
	"bytes"
	"slices"
	"strings"

	"berth/jobs"
)

// SetTOML writes key = literal into a TOML file and leaves everything else as
// it stands: other values, their order, comments, line breaks. Path is the
// key's, table first. A file that does not parse is refused, and so is a key
// that only a person can reach, inside an inline table.
func SetTOML(file string, data []byte, path []string, literal string) ([]byte, error) {
	t, err := scanFile(file, data)
	if err != nil {
		return nil, err
	}
	s, table, leaf := t.s, path[:len(path)-1], keyLiteral(path[len(path)-1])
	last := -1 // the last part of the key's table
	for i, p := range t.parts {
		switch {
		case !p.head && slices.Equal(p.path, path):
			return finish(file, data, s[:p.value]+literal+s[p.end:])
		case !p.head && within(path, p.path):
			return nil, refuse(file, lineAt(s, p.start), "edit the file by hand",
				"%s stands in an inline table, which berth does not edit", quote(strings.Join(path, ".")))
		case p.head && slices.Equal(p.path, table), !p.head && slices.Equal(p.table, table):
			last = i
		}
	}
	if last >= 0 {
		at := lineEnd(s, t.parts[last].end)
		return finish(file, data, s[:at]+nl(s[:at])+leaf+" = "+literal+"\n"+s[at:])
	}
	if len(path) == 1 {
		return finish(file, data, leaf+" = "+literal+"\n"+gap(s)+s)
	}
	// A table that dotted keys have made cannot have a head as well.
	for i := len(t.parts) - 1; i >= 0; i-- {
		p := t.parts[i]
		if !p.head && within(p.path, table) && within(path, p.table) {
			at := lineEnd(s, p.end)
			rest := path[len(p.table):]
			return finish(file, data, s[:at]+nl(s[:at])+dottedKey(rest)+" = "+literal+"\n"+s[at:])
		}
	}
	out := s + nl(s)
	if strings.TrimSpace(s) != "" {
		out += "\n"
	}
	return finish(file, data, out+"["+dottedKey(table)+"]\n"+leaf+" = "+literal+"\n")
}

// UnsetTOML takes a key out of a TOML file with its line, and tells whether it
// was there.
func UnsetTOML(file string, data []byte, path []string) ([]byte, bool, error) {
	t, err := scanFile(file, data)
	if err != nil {
		return nil, false, err
	}
	for _, p := range t.parts {
		if p.head || !slices.Equal(p.path, path) {
			continue
		}
		s := t.s
		start := strings.LastIndexByte(s[:p.start], '\n') + 1
		rest := s[lineEnd(s, p.end):]
		if start == 0 {
			rest = strings.TrimPrefix(rest, "\n") // what kept the key apart
		}
		out, err := finish(file, data, s[:start]+rest)
		return out, true, err
	}
	n, line := t.root, 0
	for _, k := range path {
		i := slices.IndexFunc(n.keys, func(e entry) bool { return e.name == k })
		if i < 0 {
			return data, false, nil
		}
		n, line = n.keys[i].value, n.keys[i].line
	}
	return nil, false, refuse(file, line, "edit the file by hand",
		"%s is a table, or stands in an inline one, which berth does not edit", quote(strings.Join(path, ".")))
}

func scanFile(file string, data []byte) (*tomlReader, error) {
	if _, err := DecodeTOML(file, data); err != nil {
		return nil, err
	}
	s, err := clean(file, data)
	if err != nil {
		return nil, err
	}
	return readTOML(file, s)
}

// finish gives the new text the line breaks of the old one, and looks whether
// it is still a file of its kind.
func finish(file string, old []byte, s string) ([]byte, error) {
	if bytes.Contains(old, []byte("\r\n")) {
		s = strings.ReplaceAll(s, "\n", "\r\n")
	}
	if bytes.HasPrefix(old, []byte("\ufeff")) {
		s = "\ufeff" + s
	}
	if _, err := DecodeTOML(file, []byte(s)); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "berth cannot put that into the file", Err: err, Hint: "edit " + file + " by hand"}
	}
	return []byte(s), nil
}

// within tells whether a path leads through a table, to something in it.
func within(path, table []string) bool {
	return len(path) > len(table) && slices.Equal(path[:len(table)], table)
}

func dottedKey(keys []string) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = keyLiteral(k)
	}
	return strings.Join(out, ".")
}

// keyLiteral writes a key, in quotes where it needs them.
func keyLiteral(k string) string {
	plain := k != "" && strings.IndexFunc(k, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
	if plain {
		return k
	}
	return StringLiteral(k)
}

// StringLiteral writes a string as TOML does, in one line.
func StringLiteral(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case isControl(r) || r == '\n' || r == '\t':
			b.WriteString(`\u`)
			const hex = "0123456789ABCDEF"
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte(hex[r>>shift&0xf])
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// lineEnd is where the line of a place ends, after its line break.
func lineEnd(s string, at int) int {
	if i := strings.IndexByte(s[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(s)
}

// nl is the line break that a text lacks at its end.
func nl(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return ""
	}
	return "\n"
}

// gap keeps what comes first apart from a table below it.
func gap(s string) string {
	if s == "" || strings.HasPrefix(s, "\n") {
		return ""
	}
	return "\n"
}
