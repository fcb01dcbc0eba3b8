package agents

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/sys/termsafe"
	"berth/jobs"
)

// Event is something that an agent said of its work. Its text is printable.
type Event struct {
	Time time.Time `json:"time,omitzero"` // when it came, where that is known
	Kind string    `json:"kind"`
	// Text is what was said: of a message, a thought, the beginning of a result, an error.
	Text string `json:"text,omitempty"`
	// Tool is what is called, with the one argument that says most; ID joins the call and
	// its result, which has Failed where it did not work.
	Tool   string `json:"tool,omitempty"`
	Arg    string `json:"arg,omitempty"`
	ID     string `json:"id,omitempty"`
	Failed bool   `json:"failed,omitempty"`
	Sub    bool   `json:"sub,omitempty"` // of an agent that the agent has started
	// Session, Model and Version are of a start.
	Session string `json:"session,omitempty"`
	Model   string `json:"model,omitempty"`
	Version string `json:"version,omitempty"`
	// Usage is what has been used since the last such event, or with Whole all of it.
	Usage *jobs.Usage `json:"usage,omitempty"`
	Whole bool        `json:"whole,omitempty"`
	// Of an end: how many turns there were, why it ended ([ReasonTurns] and the others; ""
	// is by itself), and the tools that it was not allowed to use. Of a cut, Turns is how
	// many events were left out.
	Turns  int      `json:"turns,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Denied []string `json:"denied,omitempty"`
}

// Kinds of events.
const (
	KindStart    = "start"
	KindTurn     = "turn" // the model begins to answer, in the main conversation
	KindMessage  = "message"
	KindThinking = "thinking"
	KindTool     = "tool"
	KindResult   = "result"
	KindUsage    = "usage"
	KindError    = "error"
	KindText     = "text" // a line that is no event
	KindEnd      = "end"
	KindCut      = "cut" // of a transcript: what follows was left out, but for its last events
)

// Why an agent ended, as its last event or its exit code says.
const (
	ReasonTurns = "turns" // its own cap
	ReasonUSD   = "usd"   // its own cap
	ReasonAuth  = "auth"  // its key was refused
	ReasonAPI   = "api"   // the model was not reached, or refused to answer
	ReasonInput = "input" // it did not understand its prompt or its options
)

// Reasons are all of them.
var Reasons = []string{ReasonTurns, ReasonUSD, ReasonAuth, ReasonAPI, ReasonInput}

// Bounds of what is in an event, in bytes.
const (
	maxText   = 8 << 10
	maxShort  = 1 << 10 // arguments, results
	maxName   = 128     // tools, models, sessions, ids
	maxDenied = 20
	maxTokens = 1 << 40
	maxUSD    = 1e6
)

// text makes printable text of at most so many bytes. Lines and tabs stay.
func text(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = s[:most]
		for n := 1; n < utf8.UTFMax && n <= len(s); n++ { // not within a character
			if last := s[len(s)-n:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					s = s[:len(s)-n]
				}
				break
			}
		}
	}
	if strings.ContainsFunc(s, hidden) || !utf8.ValidString(s) {
		s = strip(s)
	}
	if cut {
		s += "…"
	}
	return s
}

// hidden are the characters that do not show what they are.
func hidden(r rune) bool {
	if r >= 0x20 && r < 0x7f { // nearly all
		return false
	}
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// strip takes out functions of terminals, colours among them, and such characters.
func strip(s string) string {
	var out bytes.Buffer
	_, _ = termsafe.New(&out).Write([]byte(strings.ToValidUTF8(s, "\ufffd")))
	s = out.String()
	for {
		i := strings.Index(s, "\x1b[") // of a colour, which ends in m
		if i < 0 {
			break
		}
		j := strings.IndexByte(s[i:], 'm')
		if j < 0 {
			s = s[:i]
			break
		}
		s = s[:i] + s[i+j+1:]
	}
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, s)
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// line makes one line of at most so many bytes.
func line(s string, most int) string {
	s = text(s, most)
	if strings.ContainsAny(s, "\n\t") {
		s = oneLine.Replace(s)
	}
	return strings.TrimSpace(s)
}

// name makes a name: of a session, a model, a tool.
func name(s string) string { return line(s, maxName) }

// session is the id of a conversation: one that could be anything else, such as an
// option, is none.
func session(s string) string {
	if !jobs.IsSession(s) {
		return ""
	}
	return s
}

// tokens is a number of tokens; one that cannot be is 0.
func tokens(n int64) int64 {
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

// dollars is an amount; one that cannot be is 0.
func dollars(n float64) jobs.USD {
	if !(n > 0 && n <= maxUSD) {
		return 0
	}
	return jobs.USD(n)
}

// Has reports whether a text stands in what was said, called or answered, in upper or
// lower case; "" always does.
func (e *Event) Has(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{e.Text, e.Tool, e.Arg, e.Reason}, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

// Clean bounds an event that was read from elsewhere, and makes it printable.
func (e *Event) Clean() {
	most := maxText
	if e.Kind == KindResult {
		most = maxShort
	}
	e.Kind, e.Text, e.Tool, e.Arg, e.ID = name(e.Kind), text(e.Text, most), name(e.Tool), line(e.Arg, maxShort), name(e.ID)
	e.Session, e.Model, e.Version, e.Reason = session(e.Session), name(e.Model), name(e.Version), name(e.Reason)
	e.Turns = min(max(e.Turns, 0), 1<<20)
	e.Denied = e.Denied[:min(len(e.Denied), maxDenied)]
	for i := range e.Denied {
		e.Denied[i] = name(e.Denied[i])
	}
	if u := e.Usage; u != nil {
		u.Requests, u.Refused, u.Unpriced, u.PricesOf = min(max(u.Requests, 0), 1<<20), 0, min(max(u.Unpriced, 0), 1<<20), ""
		for _, n := range []*int64{&u.Input, &u.CacheRead, &u.CacheWrite, &u.Output} {
			*n = tokens(*n)
		}
		u.USD = dollars(float64(u.USD))
	}
}
