package broker

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxDepth = 100

// item is a value in a JSON text.
type item struct {
	kind byte   // '{', '[', '"', or the first byte of a number, of true, false or null
	raw  []byte // of a string with its quotes; nil of what has parts
}

// text is a string's.
func (v item) text() string {
	if v.kind != '"' {
		return ""
	}
	s, _ := unquote(v.raw)
	return s
}

func (v item) null() bool { return v.kind == 'n' }

// element is the name of a list's items in a path.
const element = "[]"

// walk reads a JSON text that may come from anybody, and shows each of its values with
// the names on the way to it. It refuses what two readers could understand in two ways:
// a name that is there twice in one object, and text that is no UTF-8.
func walk(body []byte, see func(path []string, v item)) error {
	if !json.Valid(body) || !utf8.Valid(body) {
		return errors.New("the body is no JSON text")
	}
	w := walker{body: body, see: see}
	w.value()
	return w.err
}

// walker is at a place in a text that is known to be valid.
type walker struct {
	body  []byte
	at    int
	path  []string
	see   func(path []string, v item)
	names int // that are held
	err   error
}

// maxNames bounds the names of the objects in which the walker is: each takes memory.
const maxNames = 100_000

func (w *walker) space() {
	for w.at < len(w.body) && strings.IndexByte(" \t\r\n", w.body[w.at]) >= 0 {
		w.at++
	}
}

// string returns the string that begins here, with its quotes.
func (w *walker) string() []byte {
	begin := w.at
	for w.at++; w.body[w.at] != '"'; w.at++ {
		if w.body[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return w.body[begin:w.at]
}

func (w *walker) value() {
	w.space()
	switch c := w.body[w.at]; c {
	case '{', '[':
		w.see(w.path, item{kind: c})
		if len(w.path) >= maxDepth {
			w.err = errors.New("the body is nested more than " + strconv.Itoa(maxDepth) + " deep")
			return
		}
		w.parts(c + 2) // both are closed by the second character behind
	case '"':
		w.see(w.path, item{c, w.string()})
	default:
		begin := w.at
		for w.at < len(w.body) && strings.IndexByte(" \t\r\n,]}", w.body[w.at]) < 0 {
			w.at++
		}
		w.see(w.path, item{c, w.body[begin:w.at]})
	}
}

func (w *walker) parts(closed byte) {
	var names map[string]struct{}
	w.path = append(w.path, element)
	defer func() {
		w.path = w.path[:len(w.path)-1]
		w.names -= len(names)
	}()
	for w.at++; w.err == nil; w.at++ { // behind the bracket, or a comma
		if w.space(); w.body[w.at] == closed {
			break
		}
		if closed == '}' {
			name, ok := unquote(w.string())
			if _, twice := names[name]; twice || !ok {
				w.err = errors.New("the body has the name " + strconv.QuoteToASCII(name[:min(len(name), 64)]) +
					" twice in one object, or one that is no text")
				return
			}
			if names == nil {
				names = map[string]struct{}{}
			}
			names[name] = struct{}{}
			if w.names++; w.names > maxNames {
				w.err = errors.New("the body has objects of more than " + strconv.Itoa(maxNames) + " names")
				return
			}
			w.path[len(w.path)-1] = name
			w.space()
			w.at++ // the colon
		}
		if w.value(); w.err != nil {
			return
		}
		if w.space(); w.body[w.at] == closed {
			break
		}
	}
	w.at++
}

// unquote is false for a string that escapes half a character.
func unquote(raw []byte) (string, bool) {
	if strings.IndexByte(string(raw), '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil && (!strings.ContainsRune(s, utf8.RuneError) || strings.Contains(string(raw), string(utf8.RuneError)))
}
