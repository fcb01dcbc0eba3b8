package strict

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// parseTOML decodes the text with the toml library, which is the judge of what
// is valid, and gives each value its line with [scanTOML]: the library tells
// lines only of errors.
func parseTOML(file, s string) (*node, error) {
	var values map[string]any
	if _, err := toml.Decode(s, &values); err != nil {
		return nil, tomlError(file, s, err)
	}
	b := tomlBuilder{places: scanTOML(s)}
	root := b.table(values, "", 1)
	return root, nil
}

func tomlError(file, s string, err error) error {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return refuse(file, 0, "", "not valid TOML: %v", err)
	}
	line := pe.Position.Line
	if strings.Contains(pe.Message, `got '\n' instead`) {
		line-- // the library has counted the line break that it stumbled over
	}
	line = min(max(line, 1), strings.Count(s, "\n")+1)
	if key, ok := strings.CutSuffix(pe.Message, "' has already been defined."); ok {
		return refuse(file, line, "", "duplicate key %s", quote(strings.TrimPrefix(key, "Key '")))
	}
	return refuse(file, line, "", "not valid TOML: %s", short(strings.TrimSuffix(pe.Message, ".")))
}

type tomlBuilder struct {
	places map[string]tomlPlace
}

func (b *tomlBuilder) table(m map[string]any, path string, line int) *node {
	n := &node{kind: Table, line: line}
	order := make(map[string]int, len(m))
	for k, v := range m {
		at := keyPath(path, k)
		p, ok := b.places[at]
		if !ok {
			p.line = line
		}
		order[k] = p.order
		n.keys = append(n.keys, entry{name: k, line: p.line, value: b.value(v, at, p.line)})
	}
	slices.SortFunc(n.keys, func(x, y entry) int { return order[x.name] - order[y.name] })
	return n
}

func (b *tomlBuilder) value(v any, path string, line int) *node {
	n := &node{line: line, text: b.places[path].raw}
	switch v := v.(type) {
	case string:
		n.kind, n.text = String, v
	case int64:
		n.kind, n.num = Int, v
	case float64:
		n.kind = Number
	case bool:
		n.kind = Bool
	case time.Time:
		n.kind = Date
	case map[string]any:
		return b.table(v, path, line)
	case []map[string]any:
		n.kind = List
		for i, m := range v {
			at := itemPath(path, i)
			n.items = append(n.items, b.table(m, at, b.line(at, line)))
		}
	case []any:
		n.kind = List
		for i, item := range v {
			at := itemPath(path, i)
			n.items = append(n.items, b.value(item, at, b.line(at, line)))
		}
	}
	return n
}

func (b *tomlBuilder) line(path string, otherwise int) int {
	if p, ok := b.places[path]; ok {
		return p.line
	}
	return otherwise
}
