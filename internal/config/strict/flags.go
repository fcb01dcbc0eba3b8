package strict

import "strconv"

// Flag is a flag of the command line, or another word from outside of any
// file, that stands for a key of a file.
type Flag struct {
	Name   string   // as the caller wrote it, without dashes
	Label  string   // how errors call it; "" is the name with dashes
	Table  string   // the table of the key; "" is the outermost
	Key    string   // the key
	Kind   Kind     // String, Int, Bool, or List of strings
	Values []string // one, or the items of a list
}

// Flags makes a document of flags, so that they pass the same checks as the
// keys of a file. Its errors name the flags; relative paths in it are relative
// to the working directory.
func Flags(flags []Flag) *Doc {
	root := &node{kind: Table}
	tables := map[string]*node{"": root}
	labels := make([]string, 0, len(flags))
	for _, f := range flags {
		label := f.Label
		if label == "" {
			label = "--" + f.Name
		}
		labels = append(labels, label)
		line := len(labels)
		t := tables[f.Table]
		if t == nil {
			t = &node{kind: Table, line: line}
			tables[f.Table] = t
			root.keys = append(root.keys, entry{name: f.Table, line: line, value: t})
		}
		t.keys = append(t.keys, entry{name: f.Key, line: line, value: f.node(line)})
	}
	d := newDoc("flags", TOML, root)
	d.labels = labels
	return d
}

func (f Flag) node(line int) *node {
	if f.Kind == List {
		n := &node{kind: List, line: line}
		for _, v := range f.Values {
			n.items = append(n.items, &node{kind: String, line: line, text: v})
		}
		return n
	}
	n := &node{kind: f.Kind, line: line, text: f.Values[0]}
	if f.Kind == Int {
		num, err := strconv.ParseInt(f.Values[0], 10, 64)
		if err != nil {
			n.kind = String
		}
		n.num = num
	}
	return n
}
