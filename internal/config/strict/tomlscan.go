package strict

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// tomlPlace is where a key or a list item stands.
type tomlPlace struct {
	line  int
	order int
	raw   string // source text of a number, date, true or false
}

// Paths name values inside a file: keys and list positions, told apart by
// their first byte, which no key can hold.
func keyPath(parent, key string) string    { return parent + "\x00" + key }
func itemPath(parent string, i int) string { return parent + "\x01" + strconv.Itoa(i) }

// scanTOML finds the place of every key and list item in a text that the toml
// library has accepted; it checks nothing itself. It reads the grammar and not
// lines, so that what looks like a key inside a string or a comment is none.
func scanTOML(s string) map[string]tomlPlace { return newTOMLScan(s).places }

func newTOMLScan(s string) *tomlScanner {
	t := &tomlScanner{s: s, line: 1, places: map[string]tomlPlace{}, tables: map[string]int{}}
	t.document()
	return t
}

type tomlScanner struct {
	s      string
	i      int
	line   int
	places map[string]tomlPlace
	tables map[string]int // how many [[...]] each path has had

	inline int        // how many inline tables are open
	parts  []tomlPart // what the file consists of, in its order
}

// tomlPart is a statement "key = value", or the head of a table, by its bytes.
type tomlPart struct {
	path       string // of the key, or of the table
	table      string // in which a statement stands
	head       bool
	start, end int // of the whole, without a comment behind it
	value      int // where the value begins
}

func (t *tomlScanner) document() {
	context := ""
	for {
		t.blank()
		start := t.i
		switch {
		case t.i >= len(t.s):
			return
		case t.eat("[["):
			keys, line := t.keys()
			parent := t.header(keys[:len(keys)-1], line)
			at := keyPath(parent, keys[len(keys)-1])
			t.mark(at, line)
			context = itemPath(at, t.tables[at])
			t.tables[at]++
			t.mark(context, line)
			t.blank()
			t.eat("]]")
			t.parts = append(t.parts, tomlPart{path: context, head: true, start: start, end: t.i})
		case t.eat("["):
			keys, line := t.keys()
			context = t.header(keys, line)
			t.blank()
			t.eat("]")
			t.parts = append(t.parts, tomlPart{path: context, head: true, start: start, end: t.i})
		default:
			t.pair(context)
		}
	}
}

// header walks the keys of a [table] line; a key that names a list of tables
// means its last one.
func (t *tomlScanner) header(keys []string, line int) string {
	path := ""
	for _, k := range keys {
		path = keyPath(path, k)
		t.mark(path, line)
		if n := t.tables[path]; n > 0 {
			path = itemPath(path, n-1)
		}
	}
	return path
}

// pair reads "key = value" under a path.
func (t *tomlScanner) pair(path string) {
	before, table := t.i, path
	keys, line := t.keys()
	for _, k := range keys {
		path = keyPath(path, k)
		t.mark(path, line)
	}
	t.blank()
	t.eat("=")
	t.blank()
	at := t.i
	t.value(path)
	if t.inline == 0 {
		end := at + len(strings.TrimRight(t.s[at:t.i], " \t\n"))
		t.parts = append(t.parts, tomlPart{path: path, table: table, start: before, value: at, end: end})
	}
	if t.i == before {
		t.i++ // never on text that the library accepted
	}
}

// mark notes the first mention of a path.
func (t *tomlScanner) mark(path string, line int) {
	if _, ok := t.places[path]; !ok {
		t.places[path] = tomlPlace{line: line, order: len(t.places)}
	}
}

// keys reads a dotted key and returns its parts, at least one.
func (t *tomlScanner) keys() ([]string, int) {
	var keys []string
	t.blank()
	line := t.line
	for {
		t.blank()
		start := t.i
		switch {
		case t.at(`"`) || t.at("'"):
			t.str()
			keys = append(keys, unquoteTOML(t.s[start:t.i]))
		default:
			for t.i < len(t.s) && !strings.ContainsRune(" \t\n=.[]{}#,\"'", rune(t.s[t.i])) {
				t.i++
			}
			keys = append(keys, t.s[start:t.i])
		}
		t.blank()
		if !t.eat(".") {
			return keys, line
		}
	}
}

// unquoteTOML reads a quoted key, whose grammar is that of a string.
func unquoteTOML(quoted string) string {
	var v struct{ K string }
	if _, err := toml.Decode("k = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}

// value skips a value, marking what is in it.
func (t *tomlScanner) value(path string) {
	switch {
	case t.at(`"`) || t.at("'"):
		t.str()
	case t.eat("["):
		for n := 0; ; n++ {
			t.separators()
			if t.i >= len(t.s) || t.eat("]") {
				return
			}
			at := itemPath(path, n)
			t.mark(at, t.line)
			before := t.i
			t.value(at)
			if t.i == before {
				t.i++
			}
		}
	case t.eat("{"):
		t.inline++
		defer func() { t.inline-- }()
		for {
			t.separators()
			if t.i >= len(t.s) || t.eat("}") {
				return
			}
			t.pair(path)
		}
	default:
		start := t.i
		for t.i < len(t.s) && !strings.ContainsRune(",]}#\n", rune(t.s[t.i])) {
			t.i++
		}
		if p, ok := t.places[path]; ok {
			p.raw = strings.TrimSpace(t.s[start:t.i])
			t.places[path] = p
		}
	}
}

// str skips a string of any of the four forms.
func (t *tomlScanner) str() {
	q := t.s[t.i : t.i+1]
	if long := q + q + q; t.eat(long) {
		for t.i < len(t.s) && !t.at(long) {
			t.char(q)
		}
		for t.eat(q) { // up to two quotes may stand before the closing three
		}
		return
	}
	t.eat(q)
	for t.i < len(t.s) && !t.at(q) {
		t.char(q)
	}
	t.eat(q)
}

// char steps over one byte of a string, or over an escaped pair.
func (t *tomlScanner) char(q string) {
	if q == `"` && t.s[t.i] == '\\' {
		t.step()
	}
	t.step()
}

func (t *tomlScanner) step() {
	if t.i < len(t.s) {
		if t.s[t.i] == '\n' {
			t.line++
		}
		t.i++
	}
}

// blank skips white space, line breaks and comments.
func (t *tomlScanner) blank() {
	for t.i < len(t.s) {
		switch t.s[t.i] {
		case ' ', '\t', '\n', '\r':
			t.step()
		case '#':
			for t.i < len(t.s) && t.s[t.i] != '\n' {
				t.i++
			}
		default:
			return
		}
	}
}

func (t *tomlScanner) separators() {
	for t.blank(); t.eat(","); t.blank() {
	}
}

func (t *tomlScanner) at(s string) bool { return strings.HasPrefix(t.s[t.i:], s) }

func (t *tomlScanner) eat(s string) bool {
	if !t.at(s) {
		return false
	}
	t.i += len(s)
	return true
}
