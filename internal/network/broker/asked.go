package broker

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// asked is what a request wants of a model.
type asked struct {
	models []string // that may answer; the first is the one that is named
	stream bool
	tools  []string // the vendor's own that it names, in the words of [jobs.Caps]
	text   int64    // bytes of what the model reads, roughly
}

// Words of [jobs.Caps] for the vendors' own tools.
const (
	toolSearch = "web_search"
	toolFetch  = "web_fetch"
	toolCode   = "code_execution"
	toolMCP    = "mcp"
)

// judged are the names at the top of a body that decide. In another spelling some
// servers take them for the same.
var judged = map[string][]string{
	jobs.APIAnthropic: {"model", "stream", "tools", "mcp_servers", "container"},
	jobs.APIOpenAI:    {"model", "models", "stream", "tools", "web_search_options", "plugins", "background", "prompt"},
	jobs.APIGemini:    {"tools", "cachedContent", "cached_content"},
}

// ask reads a request's body.
func ask(api string, body []byte) (*asked, error) {
	a := &asked{}
	var wrong error
	object := false
	err := walk(body, func(path []string, v item) {
		if a.measure(path, v); wrong != nil {
			return
		}
		switch len(path) {
		case 0:
			object = v.kind == '{'
			return
		case 1:
			for _, name := range judged[api] {
				if strings.EqualFold(name, path[0]) && name != path[0] {
					wrong = errors.New("the body has " + path[0] + ", which is " + name + " to some servers")
				}
			}
		}
		switch api {
		case jobs.APIAnthropic:
			a.anthropic(path, v)
		case jobs.APIOpenAI:
			if wrong == nil {
				wrong = a.openai(path, v)
			}
		case jobs.APIGemini:
			a.gemini(path, v)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case wrong != nil:
		return nil, wrong
	case !object:
		return nil, errors.New("the body is no JSON object")
	case len(a.tools) > maxWords || len(a.models) > maxWords:
		return nil, errors.New("the body names more than " + strconv.Itoa(maxWords) + " models, or tools of the vendor's")
	}
	for _, name := range slices.Concat(a.models, a.tools) {
		if len(name) > maxWord {
			return nil, errors.New("the body names a model or a tool with more than " + strconv.Itoa(maxWord) + " bytes")
		}
	}
	return a, nil
}

// Bounds of what a body names, which errors and records say.
const (
	maxWords = 32
	maxWord  = 200
)

// binary is how long what is no text is taken to be: a page or a picture is at most a
// few thousand tokens, whatever its bytes.
const binary = 8 << 10

func (a *asked) measure(path []string, v item) {
	switch {
	case v.kind == '-' || v.kind >= '0' && v.kind <= '9':
		a.text += 4 // a token's own number, perhaps
		return
	case v.kind != '"':
		return
	}
	n := len(v.raw) - 2
	last := ""
	if len(path) > 0 {
		last = path[len(path)-1]
	}
	if slices.Contains([]string{"data", "encrypted_content", "signature", "thoughtSignature", "file_data"}, last) ||
		strings.HasPrefix(string(v.raw[:min(n+2, 6)]), `"data:`) {
		n = min(n, binary)
	}
	a.text += int64(n)
}

func (a *asked) tool(name string) {
	if len(a.tools) <= maxWords && !slices.Contains(a.tools, name) {
		a.tools = append(a.tools, name)
	}
}

func at(path []string, want ...string) bool { return slices.Equal(path, want) }

// begins reports whether a text begins with one of a few.
func begins(s string, with ...string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasPrefix(s, w) })
}

func (a *asked) anthropic(path []string, v item) {
	switch {
	case at(path, "model"):
		a.models = append(a.models, v.text())
	case at(path, "stream"):
		a.stream = v.kind == 't'
	case at(path, "tools", element, "type"):
		if t := v.text(); t != "custom" && !v.null() && !begins(t, "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_") {
			a.tool(word(t))
		}
	case at(path, "mcp_servers", element), at(path, "mcp_servers") && v.kind != '[' && !v.null():
		a.tool(toolMCP)
	case at(path, "container") && !v.null():
		a.tool(toolCode)
	case len(path) > 2 && path[len(path)-1] == "type" && path[len(path)-2] == "source" && v.text() == "url" &&
		path[0] != "tools" && !slices.Contains(path, "input"):
		a.tool(toolFetch)
	}
}

func (a *asked) openai(path []string, v item) error {
	switch {
	case at(path, "model"), at(path, "models", element):
		name := v.text()
		switch {
		case at(path, "model"):
			a.models = slices.Insert(a.models, 0, name)
		case len(a.models) <= maxWords:
			a.models = append(a.models, name)
		}
		if strings.HasSuffix(name, ":online") || begins(name, "gpt-") && strings.Contains(name, "-search") {
			a.tool(toolSearch)
		}
	case at(path, "stream"):
		a.stream = v.kind == 't'
	case len(path) > 2 && path[0] == "tools" && path[len(path)-1] == "type" && path[len(path)-2] == element && (len(path) == 3 || path[2] == "tools"):
		if t := v.text(); !slices.Contains([]string{"function", "custom", "local_shell", "apply_patch", "namespace"}, t) {
			a.tool(word(t))
		}
	case at(path, "web_search_options") && !v.null():
		a.tool(toolSearch)
	case at(path, "plugins", element, "id"):
		a.tool(word(v.text()))
	case at(path, "plugins", element) && v.kind != '{', at(path, "plugins") && v.kind != '[' && !v.null():
		a.tool("plugins")
	case at(path, "prompt") && v.kind == '{':
		a.tool("stored_prompt") // it may name tools, too
	case at(path, "background") && v.kind == 't':
		return errors.New("the body has background: what such an answer uses could not be counted")
	case v.kind == '"' && (path[0] == "messages" || path[0] == "input"):
		last := path[len(path)-1]
		if last == "url" && len(path) > 1 {
			last = path[len(path)-2]
		}
		if strings.HasSuffix(last, "_url") && !strings.HasPrefix(v.text(), "data:") {
			a.tool(toolFetch)
		}
	}
	return nil
}

func (a *asked) gemini(path []string, v item) {
	last := path[len(path)-1]
	switch {
	case len(path) == 3 && path[0] == "tools" && path[1] == element, len(path) == 2 && path[0] == "tools" && last != element:
		if last != "functionDeclarations" && last != "function_declarations" && !v.null() {
			a.tool(word(snake(last)))
		}
	case (at(path, "cachedContent") || at(path, "cached_content")) && !v.null():
		a.tool("cached_content") // it may name tools, too
	case (last == "fileUri" || last == "file_uri") && !slices.Contains(path, "args") && !slices.Contains(path, "response") && path[0] != "tools":
		a.tool(toolFetch)
	}
}

// snake writes fileSearch as file_search.
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// word is one name for what vendors call by several, with and without a date.
func word(tool string) string {
	switch {
	case strings.Contains(tool, "web_search"), begins(tool, "google_search"), tool == "web":
		return toolSearch
	case begins(tool, "web_fetch", "url_context"):
		return toolFetch
	case begins(tool, "code_execution", "code_interpreter"):
		return toolCode
	case begins(tool, "mcp"):
		return toolMCP
	case begins(tool, "computer"):
		return "computer_use"
	case tool == "":
		return "unnamed"
	}
	return tool
}
