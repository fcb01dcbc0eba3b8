package command

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/internal/sys/pattern"

	"al.essio.dev/pkg/shellescape"
)

// Template is a command in which {name} stands for a parameter.
type Template struct {
	words  [][]piece
	script bool // one word, which a shell evaluates
	source []string
}

// piece is text, or a parameter.
type piece struct {
	text  string
	param bool
	plain bool // the value stands in quotes of the template's, or in a here-document
}

var placeholder = pattern.Lazy(`\{\{[A-Za-z_][A-Za-z0-9_]*\}\}|\{[A-Za-z_][A-Za-z0-9_]*\}`)

// Parse reads a command as it stands behind "--": one word is evaluated by the
// shell, several are a program and its arguments.
func Parse(words []string) (*Template, error) { return New(words, len(words) == 1) }

// New is the template of a script, or of a program and its arguments.
func New(words []string, script bool) (*Template, error) {
	if len(words) == 0 || strings.TrimSpace(words[0]) == "" {
		return nil, fmt.Errorf("there is no command")
	}
	t := &Template{script: script, source: words}
	for _, w := range words {
		if err := CheckText(w); err != nil {
			return nil, fmt.Errorf("the command %w", err)
		}
		t.words = append(t.words, pieces(w, t.script))
	}
	return t, nil
}

func pieces(word string, script bool) []piece {
	var out []piece
	text := func(s string) {
		if n := len(out); n > 0 && !out[n-1].param {
			out[n-1].text += s
		} else if s != "" {
			out = append(out, piece{text: s})
		}
	}
	at := 0
	for _, m := range placeholder().FindAllStringIndex(word, -1) {
		text(word[at:m[0]])
		switch name := word[m[0]:m[1]]; {
		case strings.HasPrefix(name, "{{"):
			text(name[1 : len(name)-1])
		case m[0] > 0 && word[m[0]-1] == '$': // the shell's own
			text(name)
		default:
			plain := script && (quoted(word[:m[0]]) || strings.Contains(word, "<<"))
			out = append(out, piece{text: name[1 : len(name)-1], param: true, plain: plain})
		}
		at = m[1]
	}
	text(word[at:])
	return out
}

// quoted tells whether what follows this beginning of a script stands in quotes, or
// behind a backslash.
func quoted(s string) bool {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quote != '\'':
			if i++; i >= len(s) {
				return true
			}
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		}
	}
	return quote != 0
}

var plainForm = pattern.Lazy(`^[A-Za-z0-9._/:=@%+,-]*$`)

// Command is the argv of a task. Of a script it is a shell's.
func (t *Template) Command(task Task) ([]string, error) {
	argv := make([]string, 0, len(t.words)+2)
	if t.script {
		argv = append(argv, "/bin/sh", "-c")
	}
	for _, word := range t.words {
		if len(word) == 1 && !word[0].param {
			argv = append(argv, word[0].text)
			continue
		}
		var b strings.Builder
		for _, p := range word {
			if !p.param {
				b.WriteString(p.text)
				continue
			}
			v, ok := task.value(p.text)
			switch {
			case !ok:
				return nil, fmt.Errorf("the command names {%s}, which is no parameter: {{%s}} stays as it is", p.text, p.text)
			case p.plain && !plainForm().MatchString(v):
				return nil, fmt.Errorf("%s is %q, and {%s} stands in quotes or beside a here-document: "+
					"leave the quotes out, berth quotes values", p.text, v, p.text)
			case t.script:
				v = quote(v, p.plain)
			}
			b.WriteString(v)
		}
		argv = append(argv, b.String())
	}
	return argv, nil
}

func quote(v string, plain bool) string {
	if plain || v != "" && plainForm().MatchString(v) {
		return v
	}
	return shellescape.Quote(v)
}

// Names are the parameters that it needs.
func (t *Template) Names() []string {
	names := map[string]bool{}
	for _, w := range t.words {
		for _, p := range w {
			if p.param {
				names[p.text] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Words is the template as it was written, and whether a shell evaluates it.
func (t *Template) Words() (words []string, script bool) { return t.source, t.script }

var filePlaceholder = pattern.Lazy(`\{\{ *\.([A-Za-z_][A-Za-z0-9_]*) *\}\}`)

// File is a task file with {{ .name }} replaced. Before the end of its front matter
// only plain values are taken, as another could be keys of its own.
func File(text []byte, task Task) ([]byte, error) {
	head := frontMatter(text)
	var out bytes.Buffer
	at := 0
	for _, m := range filePlaceholder().FindAllSubmatchIndex(text, -1) {
		out.Write(text[at:m[0]])
		at = m[1]
		name := string(text[m[2]:m[3]])
		v, ok := task.value(name)
		line := bytes.Count(text[:m[0]], []byte("\n")) + 1
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d: {{ .%s }} is no parameter", line, name)
		case m[0] < head && !plainForm().MatchString(v):
			return nil, fmt.Errorf("line %d: %s is %q, and in the front matter only letters, digits and ._/:=@%%+,- are taken", line, name, v)
		}
		out.WriteString(v)
	}
	out.Write(text[at:])
	return out.Bytes(), nil
}

// frontMatter is how many bytes stand before the text of a task file.
func frontMatter(text []byte) int {
	for _, fence := range []string{"+++", "---"} {
		if rest, ok := bytes.CutPrefix(text, []byte(fence)); ok {
			if i := bytes.Index(rest, []byte("\n"+fence)); i >= 0 {
				return len(fence) + i + 1
			}
			return len(text)
		}
	}
	return 0
}
