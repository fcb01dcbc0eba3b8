package strict

import (
	"fmt"
	"strconv"
)

// Kind is the type of a value as it stands in the file.
type Kind int

// The kinds of values.
const (
	Null   Kind = iota // YAML only: a key with nothing behind it
	Table              // TOML's table, YAML's mapping
	List               // TOML's array, YAML's sequence
	String             // text
	Int                // a whole number
	Number             // any other number
	Bool               // true or false
	Date               // TOML only: a date or a time
)

// node is a value with its place in the file.
type node struct {
	kind  Kind
	line  int
	text  string // of a string its value, of other scalars the source text
	num   int64
	items []*node
	keys  []entry // in the order of the file
}

// entry is a key of a table.
type entry struct {
	name  string
	line  int
	value *node
}

// describe names a value in an error.
func (n *node) describe() string {
	switch n.kind {
	case Null:
		return "nothing"
	case Table:
		return "a table"
	case List:
		return "a list"
	case String:
		return "the string " + quote(n.text)
	case Int, Number:
		return "the number " + clip(n.text)
	case Bool:
		return clip(n.text)
	case Date:
		return "the date " + clip(n.text)
	}
	return fmt.Sprintf("a value of kind %d", n.kind)
}

// maxShown is how much of a value an error repeats.
const maxShown = 60

func clip(s string) string {
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "..."
	}
	return s
}

// short keeps what the library says of a number with thousands of digits from
// repeating them.
func short(s string) string {
	const most = 200
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// quote shows a string so that nothing in it can act on a terminal.
func quote(s string) string { return strconv.Quote(clip(s)) }
