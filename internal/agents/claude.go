package agents

import (
	"cmp"
	"fmt"
	"strings"

	"berth/jobs"
)

// claude reads claude --print --verbose --output-format stream-json: each block of an
// answer comes in a line of its own, with the usage of the whole answer.
type claude struct {
	said    map[string]jobs.Usage // what was counted of answers, by their ids
	turn    string                // the answer that is the last turn
	trouble string                // of the last answer, where it is an error
}

// maxSaid bounds the answers that are remembered: those that come at once.
const maxSaid = 64

type claudeLine struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"`
	Session string  `json:"session_id"`
	Model   string  `json:"model"`
	Version string  `json:"claude_code_version"`
	Parent  *string `json:"parent_tool_use_id"`
	Error   words   `json:"error"` // of an answer: "authentication_failed"
	Message struct {
		ID      string        `json:"id"`
		Content []claudeBlock `json:"content"` // text alone is a prompt's
		Usage   *claudeUsage  `json:"usage"`
	} `json:"message"`
	// Of a result.
	Result  words        `json:"result"`
	IsError bool         `json:"is_error"`
	Turns   int          `json:"num_turns"`
	Attempt int          `json:"attempt"` // of a retry
	Most    int          `json:"max_retries"`
	Refused int          `json:"error_status"`
	USD     float64      `json:"total_cost_usd"`
	Usage   *claudeUsage `json:"usage"`
	Status  int          `json:"api_error_status"`
	Errors  []string     `json:"errors"`
	Denials []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (u *claudeUsage) usage() jobs.Usage {
	return jobs.Usage{Input: tokens(u.Input), Output: tokens(u.Output), CacheRead: tokens(u.CacheRead), CacheWrite: tokens(u.CacheWrite)}
}

type claudeBlock struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Thinking string `json:"thinking"`
	ID       string `json:"id"`
	Name     string `json:"name"`
	Input    input  `json:"input"`
	For      string `json:"tool_use_id"`
	Content  words  `json:"content"`
	IsError  bool   `json:"is_error"`
}

func (c *claude) line(d *Decoder, b []byte) bool {
	var l claudeLine
	if !read(b, &l) || l.Type == "" {
		return false
	}
	sub := l.Parent != nil && *l.Parent != ""
	switch l.Type {
	case "system":
		switch l.Subtype {
		case "init":
			d.emit(Event{Kind: KindStart, Session: session(l.Session), Model: name(l.Model), Version: name(l.Version)})
		case "api_retry":
			d.emit(l.retry())
		}
	case "assistant":
		c.answer(d, &l, sub)
	case "user":
		for _, block := range l.Message.Content {
			if block.Type == "tool_result" {
				d.result(string(block.Content), block.For, block.IsError, sub)
			}
		}
	case "result":
		c.ended(d, &l)
	case "stream_event", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "keep_alive", "control_request", "control_response":
	default:
		return d.unknown()
	}
	return true
}

// retry is a request that failed, and that it makes again.
func (l *claudeLine) retry() Event {
	said := fmt.Sprintf("the model was not reached: %s", cmp.Or(name(string(l.Error)), "unknown"))
	if l.Refused > 0 {
		said += fmt.Sprintf(" (status %d)", min(l.Refused, 999))
	}
	e := Event{Kind: KindError, Text: fmt.Sprintf("%s, retry %d of %d", said, min(max(l.Attempt, 0), 999), min(max(l.Most, 0), 999)), Reason: ReasonAPI}
	if l.Refused == 401 || l.Refused == 403 {
		e.Reason = ReasonAuth
	}
	return e
}

func (c *claude) answer(d *Decoder, l *claudeLine, sub bool) {
	if !sub && (l.Message.ID == "" || l.Message.ID != c.turn) {
		c.turn = name(l.Message.ID)
		d.emit(Event{Kind: KindTurn})
	}
	c.trouble = name(string(l.Error))
	for _, block := range l.Message.Content {
		switch block.Type {
		case "text":
			d.message(KindMessage, block.Text, sub)
		case "thinking":
			d.message(KindThinking, block.Thinking, sub)
		case "tool_use", "server_tool_use", "mcp_tool_use":
			d.call(block.Name, block.Input, block.ID, sub)
		}
	}
	if l.Message.Usage != nil {
		c.count(d, name(l.Message.ID), l.Message.Usage.usage())
	}
}

// count hands over what is more than was counted of this answer before.
func (c *claude) count(d *Decoder, id string, u jobs.Usage) {
	before, again := c.said[id]
	more := jobs.Usage{Input: u.Input - before.Input, Output: u.Output - before.Output,
		CacheRead: u.CacheRead - before.CacheRead, CacheWrite: u.CacheWrite - before.CacheWrite}
	if again && (more.Input < 0 || more.Output < 0 || more.CacheRead < 0 || more.CacheWrite < 0 || more.Tokens() == 0) {
		return
	}
	if len(c.said) >= maxSaid {
		clear(c.said)
	}
	if id != "" {
		c.said[id] = u
	}
	if again {
		d.emit(Event{Kind: KindUsage, Usage: &more}) // of a request that is counted
		return
	}
	d.used(more)
}

func (c *claude) ended(d *Decoder, l *claudeLine) {
	e := Event{Kind: KindEnd, Session: session(l.Session), Failed: l.IsError || strings.HasPrefix(l.Subtype, "error"), Turns: max(l.Turns, 0), Whole: true}
	u := jobs.Usage{USD: dollars(l.USD)}
	if l.Usage != nil {
		u = l.Usage.usage()
		u.USD = dollars(l.USD)
	}
	if u.Tokens() > 0 || u.USD > 0 {
		e.Usage = &u
	}
	said := string(l.Result)
	if said == "" {
		said = strings.Join(l.Errors[:min(len(l.Errors), 5)], "; ")
	}
	switch {
	case l.Subtype == "error_max_turns":
		e.Reason, e.Turns = ReasonTurns, max(e.Turns-1, 0) // it counts the one that it does not begin
	case l.Subtype == "error_max_budget_usd":
		e.Reason = ReasonUSD
	case !e.Failed:
	case c.trouble == "authentication_failed" || c.trouble == "billing_error" || l.Status == 401 || l.Status == 403:
		e.Reason = ReasonAuth
	case c.trouble == "invalid_request":
		e.Reason = ReasonInput
	case c.trouble != "" || l.Status != 0:
		e.Reason = ReasonAPI
	default:
		e.Reason = reasonOf(said)
	}
	if e.Failed {
		e.Text = text(said, maxShort)
	}
	for _, denied := range l.Denials {
		if len(e.Denied) < maxDenied {
			e.Denied = append(e.Denied, name(denied.Tool))
		}
	}
	d.emit(e)
}

func (*claude) end(*Decoder) {}
