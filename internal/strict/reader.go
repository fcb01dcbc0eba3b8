package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Reader takes keys out of one table. The reader of a table that is not in the
// file works too and has no keys, so that the caller asks for the same keys in
// every case and a complaint can name them.
type Reader struct {
	doc   *Doc
	name  string // dotted, "" for the outermost
	where string // for a table inside a list: how errors name it
	node  *node  // nil when it is not in the file
	line  int

	known    []string          // asked for, in that order
	synonyms map[string]string // what others call a known key
	refused  map[string]string // reserved for later, with the reason
}

func (d *Doc) reader(name, where string, n *node, line int) *Reader {
	r := &Reader{doc: d, name: name, where: where, node: n, line: line, synonyms: map[string]string{}, refused: map[string]string{}}
	d.tables = append(d.tables, r)
	return r
}

// Given tells whether the table stands in the file.
func (r *Reader) Given() bool { return r.node != nil }

// Take returns the value of a key, which makes the key known.
func (r *Reader) Take(key string) Value {
	if !slices.Contains(r.known, key) {
		r.known = append(r.known, key)
	}
	v := Value{doc: r.doc, name: r.valueName(key), key: key, line: r.line}
	if r.node == nil {
		return v
	}
	for _, e := range r.node.keys {
		if e.name == key {
			v.node, v.line = e.value, e.line
		}
	}
	return v
}

// Table returns the reader of a table inside this one.
func (r *Reader) Table(key string) *Reader {
	v := r.Take(key)
	if v.node != nil && v.node.kind != Table && v.node.kind != Null {
		v.mustBe("a table", "")
		v.node = nil
	}
	if v.node != nil && v.node.kind == Null {
		v.node = &node{kind: Table, line: v.line}
	}
	return r.doc.reader(strings.TrimPrefix(r.name+"."+key, "."), "", v.node, v.line)
}

// Synonyms tells what a known key is called elsewhere, for better answers.
func (r *Reader) Synonyms(key string, names ...string) {
	for _, n := range names {
		r.synonyms[n] = key
	}
}

// Refuse names keys whose power is not built yet, and the reason.
func (r *Reader) Refuse(reason string, keys ...string) {
	for _, k := range keys {
		r.refused[k] = reason
	}
}

// Need complains when the key is missing; example is a line that mends it.
func (r *Reader) Need(key, example string) {
	if v := r.Take(key); v.node != nil {
		return
	}
	line := r.line
	switch {
	case r.name == "" && r.where == "":
		r.doc.Failf(max(r.doc.start, 1), "", "missing key %q: add for example %s", key, example)
	case r.node == nil:
		r.doc.Failf(max(r.doc.start, 1), "", "missing key %q%s: add for example %s", key, r.in(), example)
	default:
		r.doc.Failf(line, "", "missing key %q%s: add for example %s", key, r.in(), example)
	}
}

// unknown complains about every key that was not taken.
func (r *Reader) unknown() {
	if r.node == nil {
		return
	}
	for _, e := range r.node.keys {
		if slices.Contains(r.known, e.name) {
			continue
		}
		if reason, ok := r.refused[e.name]; ok {
			r.later(e, reason)
			continue
		}
		msg := fmt.Sprintf("unknown key %s%s", quote(e.name), r.in())
		if near := r.suggest(e); near != "" {
			msg += ": did you mean " + near + "?"
		} else if reason := r.doc.refusedElsewhere(e.name); reason != "" {
			r.later(e, reason)
			continue
		} else {
			msg += ": the keys are " + strings.Join(r.known, ", ")
		}
		r.doc.Failf(e.line, "", "%s", msg)
	}
}

func (r *Reader) later(e entry, reason string) {
	r.doc.Failf(e.line, "", "key %q%s is not supported by this version of berth: %s", e.name, r.in(), reason)
}

// refusedElsewhere returns the reason for which another table refuses a key.
func (d *Doc) refusedElsewhere(key string) string {
	for _, t := range d.tables {
		if reason, ok := t.refused[key]; ok {
			return reason
		}
	}
	return ""
}

// suggest returns the right spelling or the right place of an unknown key.
func (r *Reader) suggest(e entry) string {
	if key, ok := r.synonyms[e.name]; ok {
		return r.doc.keyName(key, e.value)
	}
	for _, t := range r.doc.tables {
		if t != r && t.where == "" && slices.Contains(t.known, e.name) && t.suits(e) {
			if t.name == "" {
				return fmt.Sprintf("%q outside of any table", e.name)
			}
			return fmt.Sprintf("%q%s", e.name, t.in())
		}
	}
	if near := Nearest(e.name, r.known); near != "" {
		return r.doc.keyName(near, e.value)
	}
	for _, t := range r.doc.tables {
		if key, ok := t.synonyms[e.name]; ok && t != r && t.where == "" {
			return fmt.Sprintf("%q%s", key, t.in())
		}
	}
	return ""
}

// suits keeps a table from being sent where a value of the same name belongs,
// and the other way round.
func (r *Reader) suits(e entry) bool {
	isTable := e.value.kind == Table
	for _, t := range r.doc.tables {
		if t.where == "" && t.name == strings.TrimPrefix(r.name+"."+e.name, ".") {
			return isTable
		}
	}
	return !isTable
}

// in says in which table a key stands, as the format writes it.
func (r *Reader) in() string {
	switch {
	case r.where != "":
		return " in " + r.where
	case r.name == "":
		return ""
	case r.doc.format == YAML:
		return " in " + r.name
	}
	return " in [" + r.name + "]"
}

// keyName shows a key or the head of a table as the format writes it.
func (d *Doc) keyName(key string, v *node) string {
	if v.kind != Table {
		return fmt.Sprintf("%q", key)
	}
	if d.format == YAML {
		return key + ":"
	}
	return "[" + key + "]"
}

func (r *Reader) valueName(key string) string {
	switch {
	case r.where != "":
		return key + " in " + r.where
	case r.name == "":
		return key
	}
	return r.name + "." + key
}
