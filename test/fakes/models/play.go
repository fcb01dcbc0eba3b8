package models

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Lines of a prompt with which a test says what the model does, one after the other: [PlayRun] is followed by a shell
// command that it wants run, [PlayWrite] by the absolute path of a file and, after a space, the line that it wants in it.
const (
	PlayRun   = "play-run: "
	PlayWrite = "play-write: "
)

// PlayEnd is what it says when all of them have been called.
const PlayEnd = "The work is done."

// What each answer of such a conversation says of tokens.
const (
	PlayedIn  = 1000
	PlayedOut = 100
)

// shells and writers are tools of the agents that are known, by their names, with the name of each argument.
var (
	shells = map[string]string{"Bash": "command", "bash": "command", "run_shell_command": "command", "shell_command": "command", "exec_command": "cmd",
		"shell": "command"}
	writers = map[string][2]string{"Write": {"file_path", "content"}, "write": {"filePath", "content"}, "write_file": {"file_path", "content"}}
)

// Play answers as the script in a request's prompt says: with the call that is next after those whose results the request has,
// by a tool that the request offers. A request without a script, or without tools, is answered with a few words.
func Play(r Request) Reply {
	var asked struct{ Tools any }
	var all any
	if json.Unmarshal(r.Body, &asked) != nil || json.Unmarshal(r.Body, &all) != nil {
		return Reply{Text: "one two three", In: 10, Out: 3}
	}
	var steps []string
	results := 0
	walk(all, func(v any) {
		switch v := v.(type) {
		case string:
			if found := script(v); len(found) > len(steps) {
				steps = found
			}
		case map[string]any:
			kind, _ := v["type"].(string)
			if kind == "tool_result" || strings.HasSuffix(kind, "_call_output") || v["role"] == "tool" || v["functionResponse"] != nil {
				results++
			}
		}
	})
	var tools []string
	walk(asked.Tools, func(v any) {
		if o, is := v.(map[string]any); is {
			if name, is := o["name"].(string); is {
				tools = append(tools, name)
			}
		}
	})
	reply := Reply{Text: "one two three", In: PlayedIn, Out: PlayedOut}
	switch {
	case len(steps) == 0:
		reply.In, reply.Out = 10, 3
	case len(tools) == 0: // it wants a title, or a sum of what was said
	case results >= len(steps):
		reply.Text = PlayEnd
	default:
		if reply.Call = step(steps[results], tools); reply.Call == nil {
			return Reply{Status: 400, Raw: fmt.Sprintf(`{"error":{"type":"invalid_request_error","message":"no tool for %q is among %q"}}`, steps[results], tools)}
		}
		reply.Call.ID = fmt.Sprintf("call_%d", results+1)
	}
	return reply
}

// walk shows a value of JSON and all below it, arrays in their order.
func walk(v any, show func(any)) {
	show(v)
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			walk(e, show)
		}
	case map[string]any:
		for _, e := range v {
			walk(e, show)
		}
	}
}

// script has the lines of a text that say what is played.
func script(text string) (steps []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, PlayRun) || strings.HasPrefix(line, PlayWrite) {
			steps = append(steps, line)
		}
	}
	return steps
}

// step is the call of one line, or nil where no tool is known. Where there is none that writes files, a shell does.
func step(line string, tools []string) *Call {
	command, run := strings.CutPrefix(line, PlayRun)
	if !run {
		path, text, _ := strings.Cut(strings.TrimPrefix(line, PlayWrite), " ")
		for _, name := range tools {
			if w, is := writers[name]; is {
				return &Call{Name: name, Arguments: map[string]any{w[0]: path, w[1]: text + "\n"}}
			}
		}
		command = "printf '%s\\n' '" + strings.ReplaceAll(text, "'", `'\''`) + "' >'" + path + "'"
	}
	at := slices.IndexFunc(tools, func(name string) bool { return shells[name] != "" })
	if at < 0 {
		return nil
	}
	call := &Call{Name: tools[at], Arguments: map[string]any{shells[tools[at]]: command, "description": "as the script says"}}
	switch call.Name {
	case "shell": // takes a list
		call.Arguments = map[string]any{"command": []string{"bash", "-lc", command}}
	case "exec_command", "shell_command":
		call.Arguments = map[string]any{shells[call.Name]: command}
	}
	return call
}
