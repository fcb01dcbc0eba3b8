package strict

import (
	"fmt"
	"maps"
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
	refused  map[string]string // what is said of keys that are known and not taken
}

func (d *Doc) reader(name, where string, n *node, line int) *Reader {
	r := &Reader{doc: d, name: name, where: where, node: n, line: line, synonyms: map[string]string{}, refused: map[string]string{}}
	d.tables = append(d.tables, r)
	return r
}

// Given tells whether the table stands in the file.
func (r *Reader) Given() bool { return r.node != nil }

// Names returns the keys of the table in the order of the file, for a table
// whose keys are names that its writer has chosen.
func (r *Reader) Names() []string {
	if r.node == nil {
		return nil
	}
	var names []string
	for _, e := range r.node.keys {
		names = append(names, e.name)
	}
	return names
}

// Take returns the value of a key, which makes the key known.
func (r *Reader) Take(key string) Value {
	if !slices.Contains(r.known, key) {
		r.known = append(r.known, key)
	}
	v := Value{doc: r.doc, name: r.valueName(key), line: r.line}
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
	return r.doc.reader(r.join(key), "", v.node, v.line)
}

// Synonyms tells what a known key is called elsewhere, for better answers.
func (r *Reader) Synonyms(key string, names ...string) {
	for _, n := range names {
		r.synonyms[n] = key
	}
}

// Later names keys whose power is not built yet, and the reason.
func (r *Reader) Later(reason string, keys ...string) {
	r.Refuse("is not supported by this version of berth: "+reason, keys...)
}

// Refuse names keys that people may look for here and what to say of them.
func (r *Reader) Refuse(answer string, keys ...string) {
	for _, k := range keys {
		r.refused[k] = answer
	}
}

// Need complains when the key is missing; value is an example that both
// formats write alike.
func (r *Reader) Need(key, value string) {
	if r.Take(key).Given() {
		return
	}
	line := r.line
	if r.node == nil || line == 0 {
		line = r.doc.start
	}
	sep := " = "
	if r.doc.format == YAML {
		sep = ": "
	}
	r.doc.Failf(line, "", "missing key %q%s: add for example %s", key, r.in(), key+sep+value)
}

// unknown complains about every key that was not taken.
func (r *Reader) unknown() {
	if r.node == nil {
		return
	}
	n := 0
	for _, e := range r.node.keys {
		if slices.Contains(r.known, e.name) {
			continue
		}
		if n++; n > maxIssues {
			// Not told any more, only counted: to look for what was meant takes
			// time, and a file may have thousands.
			r.doc.Failf(e.line, "", "unknown key")
			continue
		}
		if answer, ok := r.refused[e.name]; ok {
			r.refuse(e, answer)
			continue
		}
		msg := fmt.Sprintf("unknown key %s%s", quote(e.name), r.in())
		if near := r.suggest(e); near != "" {
			msg += ": did you mean " + near + "?"
		} else if answer := r.doc.refusedElsewhere(e.name); answer != "" {
			r.refuse(e, answer)
			continue
		} else {
			msg += ": the keys are " + strings.Join(r.known, ", ")
		}
		r.doc.Failf(e.line, "", "%s", msg)
	}
}

func (r *Reader) refuse(e entry, answer string) {
	r.doc.Failf(e.line, "", "key %q%s %s", e.name, r.in(), answer)
}

// refusedElsewhere returns what another table says of a key that it refuses.
func (d *Doc) refusedElsewhere(key string) string {
	for _, t := range d.tables {
		if answer, ok := t.refused[key]; ok {
			return answer
		}
	}
	return ""
}

// suggest returns the right spelling or the right place of an unknown key.
func (r *Reader) suggest(e entry) string {
	if key, ok := r.synonyms[e.name]; ok {
		return r.keyName(key)
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
		return r.keyName(near)
	}
	if near := Nearest(e.name, slices.Sorted(maps.Keys(r.synonyms))); near != "" {
		return r.keyName(r.synonyms[near])
	}
	for _, t := range r.doc.tables {
		if key, ok := t.synonyms[e.name]; ok && t != r && t.where == "" {
			return fmt.Sprintf("%q%s", key, t.in())
		}
	}
	for _, t := range r.doc.tables {
		if near := Nearest(e.name, t.known); near != "" && t != r && t.where == "" {
			return fmt.Sprintf("%q%s", near, t.in())
		}
	}
	return ""
}

// suits keeps a table from being sent where a value of the same name belongs,
// and the other way round.
func (r *Reader) suits(e entry) bool {
	return r.doc.isTable(r.join(e.name)) == (e.value.kind == Table)
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

// keyName shows a key, or the head of a table as the format writes it.
func (r *Reader) keyName(key string) string {
	full := r.join(key)
	switch {
	case r.where != "" || !r.doc.isTable(full):
		return fmt.Sprintf("%q", key)
	case r.doc.format == YAML:
		return key + ":"
	}
	return "[" + full + "]"
}

func (d *Doc) isTable(name string) bool {
	return slices.ContainsFunc(d.tables, func(t *Reader) bool { return t.where == "" && t.name == name })
}

func (r *Reader) join(key string) string { return strings.TrimPrefix(r.name+"."+key, ".") }

func (r *Reader) valueName(key string) string {
	switch {
	case r.where != "":
		return key + " in " + r.where
	case r.name == "":
		return key
	}
	return r.name + "." + key
}
