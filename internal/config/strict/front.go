package strict

import (
	"strings"
	"unicode"
)

// Format is the language of a file's keys.
type Format int

// The formats.
const (
	TOML Format = iota
	YAML
)

// The lines that fence front matter.
const (
	fenceTOML = "+++"
	fenceYAML = "---"
)

// Front reads a Markdown file whose keys stand before the text, between two
// lines "+++" (TOML) or "---" (YAML). It returns the keys and the text, which
// has no blank lines at its head and ends with one line break, or is "".
func Front(file string, data []byte) (*Doc, string, error) {
	s, err := clean(file, data)
	if err != nil {
		return nil, "", err
	}
	first, rest, _ := strings.Cut(s, "\n")
	fence := strings.TrimRight(first, " \t")
	format, parse := TOML, parseTOML
	switch fence {
	case fenceTOML:
	case fenceYAML:
		format, parse = YAML, parseYAML
	default:
		return nil, "", refuse(file, 1, "", `no front matter: the first line must be "+++" (TOML) or "---" (YAML)`)
	}
	keys, body, ok := cutFence(rest, fence)
	if !ok {
		return nil, "", refuse(file, 1, "", "the front matter has no end: no line %q closes the one here", fence)
	}
	if len(keys) > maxFront {
		return nil, "", refuse(file, 1, "", "the front matter has more than 64KiB")
	}
	// The fence's own line stays as a blank one, so that the parsers count
	// lines as the reader of the file does.
	d, err := decode(file, "\n"+keys, format, parse)
	if err != nil {
		return nil, "", err
	}
	d.start = 1
	return d, trimBody(body), nil
}

// DecodeTOML reads a file that holds only keys.
func DecodeTOML(file string, data []byte) (*Doc, error) {
	return decodeFile(file, data, TOML, parseTOML)
}

// DecodeYAML does it for YAML. It is a function of its own, so that a program that
// reads none is linked without the parser.
func DecodeYAML(file string, data []byte) (*Doc, error) {
	return decodeFile(file, data, YAML, parseYAML)
}

type parseFunc func(file, s string) (*node, error)

func decodeFile(file string, data []byte, format Format, parse parseFunc) (*Doc, error) {
	s, err := clean(file, data)
	if err != nil {
		return nil, err
	}
	if len(s) > maxFront {
		return nil, refuse(file, 0, "", "the file has more than 64KiB")
	}
	return decode(file, s, format, parse)
}

func decode(file, s string, format Format, parse parseFunc) (*Doc, error) {
	if err := checkKeys(file, s); err != nil {
		return nil, err
	}
	if err := checkDepth(file, s); err != nil {
		return nil, err
	}
	root, err := parse(file, s)
	if err != nil {
		return nil, err
	}
	return newDoc(file, format, root), nil
}

// cutFence splits at the first line that is the fence.
func cutFence(s, fence string) (before, after string, ok bool) {
	for at := 0; at < len(s); {
		line, next := s[at:], len(s)
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		if strings.TrimRight(line, " \t") == fence {
			return s[:at], s[next:], true
		}
		at = next
	}
	return "", "", false
}

func trimBody(s string) string {
	for {
		line, rest, more := strings.Cut(s, "\n")
		if strings.TrimSpace(line) != "" || !more {
			break
		}
		s = rest
	}
	s = strings.TrimRightFunc(s, unicode.IsSpace)
	if s == "" {
		return ""
	}
	return s + "\n"
}
