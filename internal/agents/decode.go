package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"berth/jobs"
)

// maxLine is the longest line that is read, in bytes: a picture that a tool has read is
// in one. Of a longer one the beginning is shown as text.
const maxLine = 4 << 20

// rareLine is the length in bytes from which on a line is rare: its memory is not kept.
const rareLine = 256 << 10

// A Decoder makes events of what an agent writes on its standard output. It is not safe
// for concurrent use.
type Decoder struct {
	take   func(Event)
	format format
	line   []byte
	long   bool // the line is too long
	closed bool
	Seen   Counts
}

// Counts are of what has come.
type Counts struct {
	Lines   int `json:"lines"`
	Events  int `json:"events"`
	Text    int `json:"text,omitempty"`    // lines that are no event
	Unknown int `json:"unknown,omitempty"` // events of a kind that is not known
	Long    int `json:"long,omitempty"`    // lines that were too long
}

// format reads the lines of one kind of agent.
type format interface {
	// line reads one; false is that it is no event of this kind.
	line(d *Decoder, b []byte) bool
	// end is called when nothing more comes.
	end(d *Decoder)
}

// FormatNone has no events: all lines are text.
const FormatNone = "none"

var formats = map[string]func() format{
	"claude":         func() format { return &claude{said: map[string]jobs.Usage{}} },
	"codex":          func() format { return &codex{} },
	"gemini":         func() format { return &gemini{} },
	"opencode":       func() format { return &opencode{} },
	"copilot":        func() format { return &copilot{} },
	"mini-swe-agent": func() format { return &mini{} },
	FormatNone:       func() format { return plain{} },
}

// Formats are the names of all formats of events.
func Formats() []string { return slices.Sorted(maps.Keys(formats)) }

// NewDecoder makes the decoder of a format, which hands over each event.
func NewDecoder(name string, take func(Event)) (*Decoder, error) {
	make, ok := formats[name]
	if !ok {
		return nil, fmt.Errorf("there are no events of the format %q", name)
	}
	return &Decoder{take: take, format: make()}, nil
}

// Write takes what has come, whole lines or not. It never fails.
func (d *Decoder) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			d.hold(p)
			break
		}
		if len(d.line) == 0 && i <= maxLine { // no copy of most
			d.one(p[:i])
		} else {
			d.hold(p[:i])
			d.flush()
		}
		p = p[i+1:]
	}
	return n, nil
}

// Close takes the last line, which has no end. What comes afterwards is none of the agent's,
// and another Close does nothing.
func (d *Decoder) Close() {
	if d.closed {
		return
	}
	d.closed = true
	if len(d.line) > 0 {
		d.flush()
	}
	d.format.end(d)
}

func (d *Decoder) hold(p []byte) {
	if room := maxLine - len(d.line); len(p) > room {
		p, d.long = p[:room], true
	}
	if n := len(d.line) + len(p); n > cap(d.line) && n > rareLine { // by its growth it would cost five times as much
		d.line = append(make([]byte, 0, maxLine), d.line...)
	}
	d.line = append(d.line, p...)
}

func (d *Decoder) flush() {
	if d.long {
		d.Seen.Lines++
		d.Seen.Long++
		d.emit(Event{Kind: KindText, Text: text(string(d.line[:maxShort]), maxShort)})
	} else {
		d.one(d.line)
	}
	d.long = false
	if d.line = d.line[:0]; cap(d.line) > rareLine {
		d.line = nil
	}
}

func (d *Decoder) one(b []byte) {
	d.Seen.Lines++
	if b = bytes.TrimSuffix(b, []byte{'\r'}); len(bytes.TrimSpace(b)) == 0 || d.format.line(d, b) {
		return
	}
	d.Seen.Text++
	d.emit(Event{Kind: KindText, Text: text(string(b[:min(len(b), maxText+utf8.UTFMax)]), maxText)})
}

func (d *Decoder) emit(e Event) {
	d.Seen.Events++
	d.take(e)
}

// unknown counts an event of a kind that is not known.
func (d *Decoder) unknown() bool {
	d.Seen.Unknown++
	return true
}

// message hands over what was said, unless that is nothing.
func (d *Decoder) message(kind, s string, sub bool) {
	if s = text(s, maxText); strings.TrimSpace(s) != "" {
		d.emit(Event{Kind: kind, Text: s, Sub: sub})
	}
}

func (d *Decoder) call(tool string, in input, id string, sub bool) {
	d.emit(Event{Kind: KindTool, Tool: name(tool), Arg: in.arg(), ID: name(id), Sub: sub})
}

func (d *Decoder) result(s, id string, failed, sub bool) {
	d.emit(Event{Kind: KindResult, Text: strings.TrimSpace(text(strings.TrimLeft(s, "\n"), maxShort)), ID: name(id), Failed: failed, Sub: sub})
}

func (d *Decoder) used(u jobs.Usage) {
	if u.Requests, u.Input = 1, max(u.Input, 0); u.Tokens() > 0 || u.USD > 0 {
		d.emit(Event{Kind: KindUsage, Usage: &u})
	}
}

// read reads a line as JSON. What is of another type than expected stays empty.
func read(b []byte, into any) bool {
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '{' {
		return false
	}
	var other *json.UnmarshalTypeError
	err := json.Unmarshal(b, into)
	return err == nil || errors.As(err, &other)
}

// words is text that is a string, or a list of parts that have one, as in the APIs of
// models.
type words string

// UnmarshalJSON never fails: what is no text is none.
func (w *words) UnmarshalJSON(b []byte) error {
	var parts []struct{ Text string }
	switch {
	case len(b) > 1 && b[0] == '"':
		*w = words(unquote(b[1 : len(b)-1]))
	case len(b) > 0 && b[0] == '[' && json.Unmarshal(b, &parts) == nil:
		var s strings.Builder
		for _, p := range parts {
			if s.Len() > maxText {
				break
			}
			if s.Len() > 0 && p.Text != "" {
				s.WriteByte('\n')
			}
			s.WriteString(p.Text)
		}
		*w = words(s.String())
	}
	return nil
}

// maxWords is how much of a text is taken out of its line, in bytes: an event has less.
const maxWords = 64 << 10

// unquote is the text of a string of JSON between its quotes, as far as it is taken. The
// line was checked as a whole: json.Unmarshal would do that a second time.
func unquote(b []byte) string {
	out := make([]byte, 0, min(len(b), maxWords))
	for len(b) > 0 && len(out) < maxWords {
		if b[0] != '\\' {
			n := bytes.IndexByte(b, '\\')
			if n < 0 {
				n = len(b)
			}
			out = append(out, b[:min(n, maxWords-len(out))]...)
			b = b[n:]
			continue
		}
		r, n := escaped(b)
		if len(out)+utf8.RuneLen(r) > maxWords {
			break
		}
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out)
}

// escaped is the character of the escape with which b begins, and its length.
func escaped(b []byte) (rune, int) {
	if i := strings.IndexByte("bfnrt", b[1]); i >= 0 {
		return rune("\b\f\n\r\t"[i]), 2
	}
	if b[1] != 'u' {
		return rune(b[1]), 2
	}
	unit := func(b []byte) rune {
		n, _ := strconv.ParseUint(string(b[2:6]), 16, 16)
		return rune(n)
	}
	r := unit(b)
	if utf16.IsSurrogate(r) {
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if r = utf16.DecodeRune(r, unit(b[6:])); r != utf8.RuneError {
				return r, 12
			}
		}
		r = utf8.RuneError
	}
	return r, 6
}

// members hands over the values of an object that have this name, as json.Unmarshal would: the
// line was checked as a whole, and is not checked again.
func members(b []byte, name string, take func(value []byte)) {
	for b = bytes.TrimSpace(b[1:]); len(b) > 0 && b[0] == '"'; {
		n := extent(b)
		key := unquote(b[1 : n-1])
		b = bytes.TrimSpace(bytes.TrimSpace(b[n:])[1:]) // behind the colon
		n = extent(b)
		if strings.EqualFold(key, name) {
			take(b[:n])
		}
		if b = bytes.TrimSpace(b[n:]); b[0] == ',' {
			b = bytes.TrimSpace(b[1:])
		}
	}
}

// extent is the length of the value with which b begins.
func extent(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += quoted(b[i:]) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(b)
}

// quoted is the length of the string with which b begins, with its quotes.
func quoted(b []byte) int {
	for end := 1; ; end++ {
		n := bytes.IndexByte(b[end:], '"')
		if n < 0 {
			return len(b)
		}
		end += n
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// input is what a tool is called with.
type input json.RawMessage

// UnmarshalJSON keeps it as it is.
func (in *input) UnmarshalJSON(b []byte) error {
	*in = append((*in)[:0], b...)
	return nil
}

// telling are the arguments that say most of a call, the first one first.
var telling = []string{"command", "cmd", "file_path", "filePath", "path", "notebook_path", "absolute_path", "pattern", "query", "url", "description", "prompt"}

// arg is the one argument that says most; else all of them, cut.
func (in input) arg() string {
	if len(in) == 0 || string(in) == "null" || string(in) == "{}" {
		return ""
	}
	var s string
	if in[0] == '"' && json.Unmarshal(in, &s) == nil {
		if !strings.HasPrefix(s, "{") {
			return line(s, maxShort)
		}
		in = input(s) // an object as text
	}
	var args map[string]json.RawMessage
	if json.Unmarshal(in, &args) == nil {
		for _, key := range telling {
			raw, ok := args[key]
			var list []string
			switch {
			case !ok:
			case json.Unmarshal(raw, &s) == nil && strings.TrimSpace(s) != "":
				return line(s, maxShort)
			case json.Unmarshal(raw, &list) == nil && len(list) > 0:
				return line(strings.Join(list, " "), maxShort)
			}
		}
	}
	return line(string(in[:min(len(in), maxShort+utf8.UTFMax)]), maxShort)
}

// reasonOf says why an agent ended, by the words of its error, as far as they tell.
func reasonOf(message string) string {
	message = strings.ToLower(message[:min(len(message), maxShort)])
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(message, w) })
	}
	switch {
	case has("berth: "): // the broker has refused it: the key is right, and the model was not asked
		return ""
	case status(message, "401", "403") || has("unauthorized", "authentication", "invalid api key", "invalid x-api-key", "api key not valid"):
		return ReasonAuth
	case has("connection", "stream disconnected", "error sending request", "fetch failed", "timed out", "timeout", "api error", "overloaded", "rate limit",
		"retry limit", "econnrefused", "enotfound") || status(message, "429", "500", "502", "503", "529"):
		return ReasonAPI
	}
	return ""
}

// status reports whether one of these numbers stands in a message by itself: not as a part
// of a port.
func status(message string, codes ...string) bool {
	words := strings.FieldsFunc(message, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') && r != ':' })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(codes, strings.Trim(w, ":")) })
}

// plain has no events.
type plain struct{}

func (plain) line(*Decoder, []byte) bool { return false }
func (plain) end(*Decoder)               {}

// turns finds where the model begins to answer in a stream that does not say so: when
// something is said or called after the results of all calls have come.
type turns struct {
	open   int // calls without a result
	within bool
}

func (t *turns) spoke(d *Decoder) {
	if !t.within {
		t.within = true
		d.emit(Event{Kind: KindTurn})
	}
}

func (t *turns) called(d *Decoder) {
	t.spoke(d)
	t.open++
}

func (t *turns) answered() {
	if t.open = max(t.open-1, 0); t.open == 0 {
		t.within = false
	}
}
