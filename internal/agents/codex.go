package agents

import (
	"strings"

	"berth/jobs"
)

// codex reads codex exec --json. Its turn is a whole run, so that the model's own turns
// are found by what it shows.
type codex struct {
	turns turns
	open  map[string]bool // items that were begun
}

type codexLine struct {
	Type    string
	Thread  string `json:"thread_id"`
	Message string
	Error   struct{ Message string }
	Item    codexItem
	Usage   *struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cached_input_tokens"`
		Write  int64 `json:"cache_write_input_tokens"`
		Output int64 `json:"output_tokens"`
	}
}

type codexItem struct {
	ID      string
	Type    string
	Text    string
	Command string
	Output  string `json:"aggregated_output"`
	Exit    *int   `json:"exit_code"`
	Status  string
	Changes []struct{ Path, Kind string }
	Server  string
	Tool    string
	Input   input `json:"arguments"`
	Prompt  input
	Query   input
	Result  struct{ Content words }
	Error   struct{ Message string }
	Message string
	Items   []struct {
		Text      string
		Completed bool
	}
}

// maxOpen bounds the calls that are remembered.
const maxOpen = 256

func (c *codex) line(d *Decoder, b []byte) bool {
	var l codexLine
	if !read(b, &l) || l.Type == "" {
		return false
	}
	switch l.Type {
	case "thread.started":
		d.emit(Event{Kind: KindStart, Session: session(l.Thread)})
	case "turn.started", "item.plan.delta", "request_user_input":
	case "item.started", "item.updated", "item.completed":
		return c.item(d, &l.Item, strings.TrimPrefix(l.Type, "item."))
	case "turn.completed":
		e := Event{Kind: KindEnd, Whole: true}
		if u := l.Usage; u != nil {
			e.Usage = &jobs.Usage{Input: tokens(u.Input - tokens(u.Cached) - tokens(u.Write)),
				CacheRead: tokens(u.Cached), CacheWrite: tokens(u.Write),
				Output: tokens(u.Output)}
		}
		d.emit(e)
	case "turn.failed":
		d.emit(Event{Kind: KindEnd, Failed: true, Text: text(l.Error.Message, maxShort), Reason: reasonOf(l.Error.Message)})
	case "error":
		d.emit(Event{Kind: KindError, Text: text(l.Message, maxShort)})
	default:
		return d.unknown()
	}
	return true
}

func (c *codex) item(d *Decoder, it *codexItem, at string) bool {
	done := at == "completed"
	switch it.Type {
	case "agent_message", "plan":
		if done {
			c.turns.spoke(d)
			d.message(KindMessage, it.Text, false)
		}
	case "reasoning":
		if done {
			c.turns.spoke(d)
			d.message(KindThinking, it.Text, false)
		}
	case "todo_list":
		if at != "updated" {
			c.turns.spoke(d)
			d.message(KindThinking, todo(it), false)
		}
	case "error":
		if done {
			d.emit(Event{Kind: KindError, Text: text(it.Message, maxShort)})
		}
	case "command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search":
		c.tool(d, it, at)
	default:
		return d.unknown()
	}
	return true
}

// tool is a call and its result: some items are only shown when they are complete.
func (c *codex) tool(d *Decoder, it *codexItem, at string) {
	if !c.open[it.ID] && at != "updated" {
		c.turns.called(d)
		if c.open == nil || len(c.open) >= maxOpen {
			c.open = map[string]bool{}
		}
		c.open[it.ID] = true
		tool, arg := it.call()
		d.emit(Event{Kind: KindTool, Tool: name(tool), Arg: line(arg, maxShort), ID: name(it.ID)})
	}
	if at == "completed" {
		delete(c.open, it.ID)
		said := it.Output
		if said == "" {
			said = string(it.Result.Content)
		}
		if it.Error.Message != "" {
			said = it.Error.Message
		}
		d.result(said, it.ID, it.Status == "failed" || it.Status == "declined" || it.Exit != nil && *it.Exit != 0, false)
		c.turns.answered()
	}
}

func (it *codexItem) call() (tool, arg string) {
	switch it.Type {
	case "command_execution":
		return "shell", it.Command
	case "file_change":
		var all strings.Builder
		for _, ch := range it.Changes {
			if all.Len() > maxShort {
				break
			}
			all.WriteString(ch.Kind + " " + ch.Path + " ")
		}
		return "edit", all.String()
	case "mcp_tool_call":
		return it.Server + "." + it.Tool, it.Input.arg()
	case "web_search":
		return "web_search", it.Query.arg()
	}
	return it.Tool, it.Prompt.arg()
}

func todo(it *codexItem) string {
	var all strings.Builder
	for _, one := range it.Items {
		if all.Len() > maxText {
			break
		}
		mark := "[ ] "
		if one.Completed {
			mark = "[x] "
		}
		all.WriteString(mark + one.Text + "\n")
	}
	return strings.TrimSuffix(all.String(), "\n")
}

func (*codex) end(*Decoder) {}
