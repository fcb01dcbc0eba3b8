package strict

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/internal/sys/pattern"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

func parseTOML(file, s string) (*node, error) {
	t, err := readTOML(file, s)
	if err != nil {
		return nil, err
	}
	return t.root, nil
}

// readTOML reads a text with the library's parser, which tells where keys and
// values stand. That parser knows only the grammar. Whether dates exist,
// numbers fit and keys stand once is known to [toml.Unmarshal], so that goes
// first and is the judge of what is valid.
func readTOML(file, s string) (*tomlReader, error) {
	var all map[string]any
	var wrong *toml.DecodeError
	err := toml.Unmarshal([]byte(s), &all)
	clash := 0 // the line of an expression that is at odds with an earlier one
	switch {
	case err == nil:
	case !errors.As(err, &wrong):
		return nil, refuse(file, 0, "", "not valid TOML: %v", err)
	default:
		clash, _ = wrong.Position()
		if wrong.Key() == nil { // which only such an expression has
			return nil, refuse(file, clash, "", "not valid TOML: %s", plainTOML(s, wrong))
		}
	}
	t := &tomlReader{s: s, n: 1, root: &node{kind: Table, line: 1}}
	t.table = t.root
	t.p.Reset([]byte(s))
	for t.p.NextExpression() {
		t.expression(t.p.Expression())
		if err != nil && t.n >= clash {
			break
		}
	}
	if err != nil {
		return nil, refuse(file, t.metOn, "", "duplicate key %s", quote(dottedKey(t.met)))
	}
	return t, nil
}

// codePoint is how the library names a character.
var codePoint = pattern.Lazy(`U\+([0-9A-F]+)( '.+')?`)

// plainTOML is what the library says of a text, without what only programmers
// know. Of a character outside of ASCII it has seen but the first byte.
func plainTOML(s string, err *toml.DecodeError) string {
	line, column := err.Position()
	here := strings.Split(s, "\n")[line-1][column-1:]
	said := strings.NewReplacer("unexpected character U+000A", "unexpected end of the line", "strconv.ParseFloat: parsing ", "").
		Replace(strings.TrimPrefix(err.Error(), "toml: "))
	said = codePoint().ReplaceAllStringFunc(said, func(name string) string {
		code, _ := strconv.ParseUint(codePoint().FindStringSubmatch(name)[1], 16, 8)
		switch i := strings.IndexFunc(here, func(r rune) bool { return r >= utf8.RuneSelf }); {
		case code == '\n':
			return "the end of the line"
		case code >= utf8.RuneSelf && i >= 0:
			r, _ := utf8.DecodeRuneInString(here[i:])
			return strconv.QuoteRune(r)
		default:
			return strconv.QuoteRune(rune(code))
		}
	})
	return short(said)
}

// tomlReader makes nodes of a text's expressions. It goes through the text
// once, from its head to its end.
type tomlReader struct {
	p    unstable.Parser
	s    string
	i, n int // a byte, and the line on which it stands
	root *node

	table  *node    // the one that the last head has opened
	path   []string // of that table
	listed bool     // whether it stands in a list of tables

	met     []string // of an expression's keys the last that was there before
	metOn   int      // the line on which it was met
	metLeaf bool     // whether it was to have a value, which is wrong for sure

	parts []tomlPart // what can be edited, in the order of the file
}

// tomlPart is a statement "key = value", or the head of a table, by its bytes.
// Those in a list of tables are left out, for no path names them.
type tomlPart struct {
	path              []string // of the key, or of the table
	table             []string // in which a statement stands
	head              bool
	start, value, end int // of the key, its value, and the whole without a comment
}

// line returns the line of a byte. Bytes must be asked for in their order, so
// that a large file is counted once.
func (t *tomlReader) line(at int) int {
	t.n += strings.Count(t.s[t.i:at], "\n")
	t.i = at
	return t.n
}

// expression adds a statement or opens a table.
func (t *tomlReader) expression(e *unstable.Node) {
	t.met, t.metLeaf = nil, false
	if e.Kind != unstable.KeyValue {
		t.open(e)
		return
	}
	path, value := t.pair(t.table, t.path, e)
	if !t.listed {
		t.parts = append(t.parts, tomlPart{path: path, table: t.path, start: int(e.Raw.Offset), value: value, end: end(e)})
	}
}

// open goes to the table of a head; a key on the way that names a list of
// tables means its last one.
func (t *tomlReader) open(e *unstable.Node) {
	t.table, t.path, t.listed = t.root, nil, false
	last := 0
	for it := e.Key(); it.Next(); {
		k := it.Node()
		last = end(k)
		t.path = append(t.path, string(k.Data))
		line := t.line(int(k.Raw.Offset))
		n := t.step(t.table, t.path, line, false)
		if e.Kind == unstable.ArrayTable && it.IsLast() {
			n.kind = List
			n.items = append(n.items, &node{kind: Table, line: line})
		}
		if len(n.items) > 0 {
			n, t.listed = n.items[len(n.items)-1], true
		}
		t.table = n
	}
	if !t.listed {
		t.parts = append(t.parts, tomlPart{path: t.path, head: true, end: last})
	}
}

// pair adds "key = value" to a table, and returns the path of the key and where
// the value begins.
func (t *tomlReader) pair(n *node, table []string, e *unstable.Node) (path []string, value int) {
	path = slices.Clone(table)
	for it := e.Key(); it.Next(); {
		k := it.Node()
		path = append(path, string(k.Data))
		n = t.step(n, path, t.line(int(k.Raw.Offset)), it.IsLast())
		value = end(k)
	}
	value += len(t.s[value:]) - len(strings.TrimLeft(t.s[value:], " \t="))
	v, _ := t.value(e.Value(), path, value)
	*n = *v
	return path, value
}

// step goes from a table to what the last key of a path names there, which is a
// new table when the key is new.
func (t *tomlReader) step(n *node, path []string, line int, leaf bool) *node {
	name := path[len(path)-1]
	i := slices.IndexFunc(n.keys, func(e entry) bool { return e.name == name })
	if i < 0 {
		v := &node{kind: Table, line: line}
		n.keys = append(n.keys, entry{name: name, line: line, value: v})
		return v
	}
	if !t.metLeaf {
		t.met, t.metOn, t.metLeaf = path, line, leaf
	}
	return n.keys[i].value
}

// value makes a node of a value, and returns where it ends. The parser tells no
// place of a list, so this takes where the value begins.
func (t *tomlReader) value(v *unstable.Node, path []string, at int) (*node, int) {
	n := &node{line: t.line(at), text: string(v.Data)}
	switch v.Kind {
	case unstable.Array:
		n.kind = List
		at++
		for it := v.Children(); it.Next(); {
			var item *node
			item, at = t.value(it.Node(), path, t.skip(at))
			n.items = append(n.items, item)
		}
		return n, t.skip(at) + 1
	case unstable.InlineTable:
		n.kind = Table
		at++
		for it := v.Children(); it.Next(); {
			t.pair(n, path, it.Node())
			at = end(it.Node())
		}
		return n, t.skip(at) + 1
	case unstable.String:
		n.kind = String
	case unstable.Integer:
		n.kind = Int
		n.num, _ = strconv.ParseInt(n.text, 0, 64) // the library has found it good
	case unstable.Float:
		n.kind = Number
	case unstable.Bool:
		n.kind = Bool
	default:
		n.kind = Date
	}
	return n, end(v)
}

// skip steps over what may stand between the items of a list.
func (t *tomlReader) skip(at int) int {
	for {
		at += len(t.s[at:]) - len(strings.TrimLeft(t.s[at:], " \t\n,"))
		if t.s[at] != '#' {
			return at
		}
		at = lineEnd(t.s, at)
	}
}

// end is where a key, a scalar or a statement ends.
func end(n *unstable.Node) int { return int(n.Raw.Offset + n.Raw.Length) }
