package agents

import (
	"strings"

	"berth/jobs"
)

// copilot reads copilot --output-format json. What it counts are its own units: tokens
// are taken where it shows them, and never dollars.
type copilot struct{}

type copilotLine struct {
	Type    string
	Session string `json:"sessionId"`
	Exit    int    `json:"exitCode"`
	Data    struct {
		Session string `json:"sessionId"`
		Version string `json:"copilotVersion"`
		Model   string
		Content words
		ID      string `json:"toolCallId"`
		Tool    string `json:"toolName"`
		Input   input  `json:"arguments"`
		Parent  string `json:"parentToolCallId"`
		Success *bool
		Result  copilotResult
		Error   struct{ Message string }
		Message words
		// Of assistant.usage.
		In         int64 `json:"inputTokens"`
		Out        int64 `json:"outputTokens"`
		CacheRead  int64 `json:"cacheReadTokens"`
		CacheWrite int64 `json:"cacheWriteTokens"`
	}
}

// copilotResult is a text, or an object that has one.
type copilotResult string

// UnmarshalJSON never fails.
func (r *copilotResult) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		members(b, "content", func(value []byte) { _ = (*words)(r).UnmarshalJSON(value) })
		return nil
	}
	return (*words)(r).UnmarshalJSON(b)
}

func (c *copilot) line(d *Decoder, b []byte) bool {
	var l copilotLine
	if !read(b, &l) || l.Type == "" {
		return false
	}
	p := &l.Data
	sub := p.Parent != ""
	switch l.Type {
	case "session.start":
		d.emit(Event{Kind: KindStart, Session: session(p.Session), Version: name(p.Version), Model: name(p.Model)})
	case "assistant.turn_start":
		if !sub {
			d.emit(Event{Kind: KindTurn})
		}
	case "assistant.message":
		d.message(KindMessage, string(p.Content), sub)
	case "assistant.reasoning":
		d.message(KindThinking, string(p.Content), sub)
	case "assistant.usage":
		d.used(jobs.Usage{Input: tokens(p.In - p.CacheRead), Output: tokens(p.Out), CacheRead: tokens(p.CacheRead), CacheWrite: tokens(p.CacheWrite)})
	case "tool.execution_start":
		d.call(p.Tool, p.Input, p.ID, sub)
	case "tool.execution_complete":
		failed, said := p.Success != nil && !*p.Success, string(p.Result)
		if p.Error.Message != "" {
			said = p.Error.Message
		}
		d.result(said, p.ID, failed, sub)
	case "session.error":
		said := string(p.Message)
		d.emit(Event{Kind: KindError, Text: text(said, maxShort), Reason: reasonOf(said)})
	case "result":
		d.emit(Event{Kind: KindEnd, Session: session(l.Session), Failed: l.Exit != 0})
	default:
		kind, _, _ := strings.Cut(l.Type, ".")
		switch kind {
		case "session", "user", "system", "assistant", "tool", "permission", "hook", "subagent", "skill", "abort":
		default:
			return d.unknown()
		}
	}
	return true
}

func (*copilot) end(*Decoder) {}
