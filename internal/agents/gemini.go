package agents

import (
	"strings"
	"unicode/utf8"

	"berth/jobs"
)

// gemini reads gemini --output-format stream-json: messages come in pieces, and what was
// used at the end.
type gemini struct {
	turns turns
	piece strings.Builder
}

type geminiLine struct {
	Type    string
	Session string `json:"session_id"`
	Model   string
	Role    string
	Content string
	Delta   bool
	Tool    string `json:"tool_name"`
	ID      string `json:"tool_id"`
	Input   input  `json:"parameters"`
	Status  string
	Output  string
	Message string
	Error   struct{ Type, Message string }
	Stats   *struct {
		Total  int64 `json:"total_tokens"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64 `json:"cached"`
	}
}

func (g *gemini) line(d *Decoder, b []byte) bool {
	var l geminiLine
	if !read(b, &l) || l.Type == "" {
		g.flush(d)
		return false
	}
	if l.Type != "message" || l.Role != "assistant" {
		g.flush(d)
	}
	switch l.Type {
	case "init":
		d.emit(Event{Kind: KindStart, Session: session(l.Session), Model: name(l.Model)})
	case "message":
		if l.Role == "assistant" {
			g.turns.spoke(d)
			if g.piece.Len() <= maxText {
				g.piece.WriteString(l.Content[:min(len(l.Content), maxText+utf8.UTFMax)])
			}
			if !l.Delta {
				g.flush(d)
			}
		}
	case "tool_use":
		g.turns.called(d)
		d.call(l.Tool, l.Input, l.ID, false)
	case "tool_result":
		said := l.Output
		if l.Error.Message != "" {
			said = l.Error.Message
		}
		d.result(said, l.ID, l.Status == "error", false)
		g.turns.answered()
	case "error":
		d.emit(Event{Kind: KindError, Text: text(l.Message, maxShort)})
	case "result":
		g.ended(d, &l)
	default:
		return d.unknown()
	}
	return true
}

func (g *gemini) ended(d *Decoder, l *geminiLine) {
	e := Event{Kind: KindEnd, Failed: l.Status == "error", Whole: true, Text: text(l.Error.Message, maxShort)}
	if s := l.Stats; s != nil {
		u := jobs.Usage{Input: tokens(s.Input - s.Cached), CacheRead: tokens(s.Cached), Output: tokens(s.Output)}
		u.Output += tokens(tokens(s.Total) - u.Tokens()) // thoughts are in none of the two
		if u.Tokens() > 0 {
			e.Usage = &u
		}
	}
	if e.Failed {
		switch l.Error.Type {
		case "FatalTurnLimitedError":
			e.Reason = ReasonTurns
		case "FatalAuthenticationError":
			e.Reason = ReasonAuth
		case "FatalInputError", "FatalConfigError":
			e.Reason = ReasonInput
		default:
			e.Reason = reasonOf(l.Error.Message)
		}
	}
	d.emit(e)
}

func (g *gemini) flush(d *Decoder) {
	if g.piece.Len() > 0 {
		d.message(KindMessage, g.piece.String(), false)
		g.piece.Reset()
	}
}

func (g *gemini) end(d *Decoder) { g.flush(d) }
