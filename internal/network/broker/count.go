package broker

import (
	"bytes"
	"encoding/json"
	"strings"

	"berth/jobs"
)

const (
	maxLine   = 8 << 20  // of an event of a stream, that is read
	maxAnswer = 32 << 20 // of an answer that is none
	maxCount  = 1 << 40  // of tokens: more is no count
)

// counter reads what an answer says of tokens as it goes by.
type counter struct {
	api    string
	events bool // it is a stream of events
	buffer []byte
	lost   bool // a part was too long to be read

	said  jobs.Usage // the most of each that was said
	final bool       // the numbers are those of the whole answer
	text  int64      // bytes of text in events
	parts int64      // events with text
	bytes int64
	ended bool
}

// write takes what has come.
func (c *counter) write(p []byte) {
	c.bytes += int64(len(p))
	if !c.events {
		if c.lost = c.lost || len(c.buffer)+len(p) > maxAnswer; c.lost {
			c.buffer = nil
			return
		}
		c.buffer = append(c.buffer, p...)
		return
	}
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			c.line(p)
			return
		}
		c.line(p[:i])
		if !c.lost {
			c.event(c.buffer)
		}
		c.buffer, c.lost, p = c.buffer[:0], false, p[i+1:]
	}
}

func (c *counter) line(p []byte) {
	if c.lost = c.lost || len(c.buffer)+len(p) > maxLine; !c.lost {
		c.buffer = append(c.buffer, p...)
	}
}

// event reads a line of a stream.
func (c *counter) event(line []byte) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || len(data) == 0 {
		return
	}
	if bytes.Contains(data, []byte(`sage`)) { // usage, usageMetadata
		c.document(data)
	}
	before := c.text
	kind := ""
	_ = walk(bytes.TrimSpace(data), func(path []string, v item) {
		if v.kind != '"' || len(path) == 0 {
			return
		}
		if at(path, "type") {
			kind = v.text()
		}
		switch path[len(path)-1] {
		case "text", "content", "arguments", "partial_json", "thinking", "reasoning_content", "reasoning", "delta":
			c.text += int64(len(v.raw) - 2)
		}
	})
	if kind != "" && !strings.HasSuffix(kind, "delta") { // the whole of it once more
		c.text = before
	}
	if c.text > before {
		c.parts++
	}
}

// document is an answer, or an event of one, of any of the vendors'.
type document struct {
	Type     string
	Usage    *usage
	Message  struct{ Usage *usage }
	Response struct{ Usage *usage }
	Metadata *struct {
		Prompt     int64 `json:"promptTokenCount"`
		Cached     int64 `json:"cachedContentTokenCount"`
		Candidates int64 `json:"candidatesTokenCount"`
		Thoughts   int64 `json:"thoughtsTokenCount"`
		ToolUse    int64 `json:"toolUsePromptTokenCount"`
	} `json:"usageMetadata"`
}

// usage has the names of Anthropic's and OpenAI's.
type usage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheWrite    int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	PromptDetails *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	InputDetails *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

func (c *counter) document(data []byte) {
	var d document
	if json.Unmarshal(data, &d) != nil {
		return
	}
	if m := d.Metadata; m != nil && c.api == jobs.APIGemini {
		c.more(jobs.Usage{Input: m.Prompt + m.ToolUse - m.Cached, CacheRead: m.Cached, Output: m.Candidates + m.Thoughts})
		c.final = true
	}
	u := d.Usage
	for _, inner := range []*usage{d.Message.Usage, d.Response.Usage} {
		if u == nil {
			u = inner
		}
	}
	switch {
	case u == nil:
	case c.api == jobs.APIAnthropic:
		c.more(jobs.Usage{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output})
		c.final = c.final || d.Type != "message_start"
	case c.api == jobs.APIOpenAI:
		cached := int64(0)
		if u.PromptDetails != nil {
			cached = u.PromptDetails.Cached
		}
		if u.InputDetails != nil {
			cached = u.InputDetails.Cached
		}
		c.more(jobs.Usage{Input: u.Input + u.Prompt - cached, CacheRead: cached, Output: u.Output + u.Completion})
		c.final = c.final || u.Input+u.Prompt > 0
	}
}

// more keeps the larger of each: the numbers of a stream are those from its beginning.
func (c *counter) more(u jobs.Usage) {
	most := func(have *int64, n int64) {
		if n > *have && n < maxCount {
			*have = n
		}
	}
	most(&c.said.Input, u.Input)
	most(&c.said.CacheRead, u.CacheRead)
	most(&c.said.CacheWrite, u.CacheWrite)
	most(&c.said.Output, u.Output)
}

// told reports whether the answer has said what went in.
func (c *counter) told() bool { return c.said.Input+c.said.CacheRead+c.said.CacheWrite > 0 }

// now is what has been used so far; input is what the request is estimated at.
func (c *counter) now(input int64) jobs.Usage {
	u := c.said
	if !c.told() {
		u.Input = input
	}
	if c.final {
		return u
	}
	u.Estimated = true
	out := max(c.text/4, c.parts)
	switch { // one that is no stream says at its end what it has used
	case !c.events && !c.ended:
		out = 0
	case !c.events:
		out = c.bytes / 4
	}
	u.Output = max(u.Output, out)
	return u
}

// end is the same when nothing more comes.
func (c *counter) end(input int64) jobs.Usage {
	c.ended = true
	if !c.events && !c.lost {
		data := bytes.TrimSpace(c.buffer)
		if bytes.HasPrefix(data, []byte("[")) { // a stream of Gemini's without events
			var list []json.RawMessage
			_ = json.Unmarshal(data, &list)
			for _, one := range list {
				c.document(one)
			}
		} else {
			c.document(data)
		}
	} else if c.events {
		c.event(c.buffer)
	}
	return c.now(input)
}
