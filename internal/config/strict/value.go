package strict

import (
	"fmt"
	"strings"

	"berth/jobs"
)

// Value is the value of a key, or an item of a list, with its place. A nil
// node stands for a key that is not in the file: the methods then return zero
// values and complain about nothing.
type Value struct {
	doc  *Doc
	name string // how errors call it
	node *node
	line int
}

// Given tells whether the key stands in the file.
func (v Value) Given() bool { return v.node != nil }

// Line is the line on which the value's key stands, from 1; of a flag it means
// nothing.
func (v Value) Line() int { return v.line }

// Kind is the type of a value that is given.
func (v Value) Kind() Kind {
	if v.node == nil {
		return Null
	}
	return v.node.kind
}

// Source is a number, true, false or a date as it stands in the file; of a
// string it is the string.
func (v Value) Source() string {
	if v.node == nil {
		return ""
	}
	return v.node.text
}

// InFile tells whether the value stands in a file, and not in a flag or another
// word from outside.
func (v Value) InFile() bool { return v.doc != nil && v.doc.labels == nil }

// Is tells whether the value is there and of this kind.
func (v Value) Is(k Kind) bool { return v.node != nil && v.node.kind == k }

// Failf adds a complaint about the value; the message goes on after its name.
func (v Value) Failf(hint, format string, args ...any) {
	v.doc.Failf(v.line, hint, "%s%s", v.label(" "), fmt.Sprintf(format, args...))
}

// On returns the value with the line of another one, for a complaint about a
// part of it.
func (v Value) On(part Value) Value {
	v.line = part.line
	return v
}

// Fail adds an error's text as a complaint about the value.
func (v Value) Fail(err error) {
	v.doc.Failf(v.line, jobs.HintOf(err), "%s%v", v.label(": "), err)
}

// label is the value's name and what follows it; a flag is named by its place
// already.
func (v Value) label(then string) string {
	if v.doc.labels != nil {
		return ""
	}
	return v.name + then
}

// MustBe complains that the value is of the wrong type.
func (v Value) MustBe(what string) { v.mustBe(what, "") }

func (v Value) mustBe(what, cure string) {
	if cure != "" {
		cure = ": " + cure
	}
	v.Failf("", "must be %s, found %s%s", what, v.node.describe(), cure)
}

// Text returns a string of one line without control characters, which is not
// empty. It returns "" after a complaint and for a key that is not there.
func (v Value) Text() string {
	s := v.str("a string")
	if s == "" {
		return ""
	}
	if err := jobs.CheckText(v.name, s); err != nil {
		v.doc.Failf(v.line, jobs.HintOf(err), "%v", err)
		return ""
	}
	if strings.TrimSpace(s) != s {
		v.Failf("", "begins or ends with white space: %s", quote(s))
		return ""
	}
	return s
}

// Script returns text for a shell: line breaks and tabs are fine, other
// control characters are not. Line breaks at its end are cut.
func (v Value) Script() string {
	s := strings.TrimRight(v.str("a string"), "\n")
	if s == "" || !v.CheckScript(s) {
		return ""
	}
	if strings.TrimSpace(s) == "" {
		v.Failf("", "is empty")
		return ""
	}
	return s
}

// CheckScript complains about control characters other than line breaks and
// tabs.
func (v Value) CheckScript(s string) bool {
	err := jobs.CheckText(v.name, strings.NewReplacer("\n", "", "\t", "").Replace(s))
	if err != nil {
		v.Failf("remove escape characters; line breaks and tabs may stay", "holds a control character")
	}
	return err == nil
}

// Raw returns a string as it is, whatever is in it, and whether it was one.
func (v Value) Raw() (string, bool) {
	if v.node == nil {
		return "", false
	}
	if v.node.kind != String {
		v.MustBeText("a string")
		return "", false
	}
	return v.node.text, true
}

func (v Value) str(what string) string {
	if v.node == nil {
		return ""
	}
	if v.node.kind != String {
		v.MustBeText(what)
		return ""
	}
	if v.node.text == "" {
		v.Failf("", "is empty: remove it or give it a value")
	}
	return v.node.text
}

// MustBeText is [Value.MustBe] for something that would be right in quotes.
func (v Value) MustBeText(what string) {
	switch v.node.kind {
	case Int, Number, Bool, Date:
		v.mustBe(what, fmt.Sprintf("put it in quotes: %q", clip(v.node.text)))
	case Null:
		v.mustBe(what, "remove the key or give it a value")
	case String, List, Table:
		v.mustBe(what, "")
	}
}

// Count returns a whole number from 1 to most, or 0.
func (v Value) Count(most int) int { return v.between(1, most) }

// UpTo returns a whole number from 0 to most.
func (v Value) UpTo(most int) int { return v.between(0, most) }

func (v Value) between(least, most int) int {
	if v.node == nil {
		return 0
	}
	if v.node.kind != Int {
		cure := ""
		if v.node.kind == String && decimal().MatchString(v.node.text) {
			cure = "write " + v.node.text + " without quotes"
		}
		v.mustBe("a whole number", cure)
		return 0
	}
	if v.node.num < int64(least) || v.node.num > int64(most) {
		v.Failf("", "must be from %d to %d, found %d", least, most, v.node.num)
		return 0
	}
	return int(v.node.num)
}

// Whole returns the number of a value of kind [Int].
func (v Value) Whole() int64 {
	if !v.Is(Int) {
		return 0
	}
	return v.node.num
}

// Bool returns true or false; false when it is not there.
func (v Value) Bool() bool {
	if v.node == nil {
		return false
	}
	if v.node.kind != Bool {
		v.mustBe("true or false", "")
		return false
	}
	return v.node.text == "true"
}

// Items returns the values of a list; of says what is in it.
func (v Value) Items(of string) []Value {
	if v.node == nil {
		return nil
	}
	if v.node.kind != List {
		cure := ""
		if v.node.kind == String && !strings.ContainsAny(v.node.text, "\n") {
			cure = fmt.Sprintf("write [%s]", quote(v.node.text))
		}
		v.mustBe("a list of "+of, cure)
		return nil
	}
	var items []Value
	for i, n := range v.node.items {
		items = append(items, Value{doc: v.doc, name: fmt.Sprintf("%s[%d]", v.name, i), node: n, line: n.line})
	}
	return items
}

// Texts returns a list of strings as [Value.Text] reads them.
func (v Value) Texts(of string) []string {
	var out []string
	for _, i := range v.Items(of) {
		if s := i.Text(); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// Table returns the reader of a table that is an item of a list.
func (v Value) Table() *Reader {
	return v.doc.reader(v.name, v.name, v.node, v.line)
}

// OneOf returns a string out of a few.
func (v Value) OneOf(words ...string) string {
	s := v.Text()
	if s == "" {
		return ""
	}
	for _, w := range words {
		if s == w {
			return s
		}
	}
	v.Failf("", "must be %s, found %s%s", orList(words), quote(s), DidYouMean(s, words))
	return ""
}
