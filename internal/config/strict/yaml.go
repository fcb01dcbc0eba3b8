package strict

import (
	"errors"
	"strconv"
	"strings"

	"berth/internal/sys/pattern"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads the subset of YAML that says the same as TOML: mappings with
// text keys, lists, strings, plain decimal numbers, true and false. Anchors,
// aliases, tags and several documents are refused: they add ways to surprise
// (and to fill memory) and nothing that a task needs.
func parseYAML(file, s string) (root *node, err error) {
	// The parser is large and not ours; a bug in it must not end a client
	// that reads a file of another user.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, refuse(file, 0, "", "not valid YAML: the parser failed on it: %v", p)
		}
	}()
	f, err := parser.ParseBytes([]byte(s), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlError(file, s, err)
	}
	y := yamlReader{file: file, lines: strings.Count(s, "\n") + 1}
	root = &node{kind: Table, line: 1}
	for i, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			return nil, refuse(file, y.line(doc.Body), "", "more than one YAML document")
		}
		if root, err = y.value(doc.Body); err != nil {
			return nil, err
		}
	}
	switch root.kind {
	case Table:
	case Null:
		root.kind = Table
	default:
		return nil, refuse(file, root.line, "", "the keys must be a YAML mapping, found %s", root.describe())
	}
	return root, nil
}

func yamlError(file, s string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return refuse(file, 0, "", "not valid YAML: %v", err)
	}
	line := 0
	if t := ye.GetToken(); t != nil && t.Position != nil {
		line = min(max(t.Position.Line, 1), strings.Count(s, "\n")+1)
	}
	return refuse(file, line, "", "not valid YAML: %s", ye.GetMessage())
}

type yamlReader struct {
	file  string
	lines int
}

func (y *yamlReader) line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return min(max(t.Position.Line, 1), y.lines)
	}
	return 1
}

// decimal is how a whole number is written. YAML readers do not agree on 010,
// 0x10, 1_000 and 1:30, so these are numbers of kind Number or strings, and
// fit nowhere without quotes.
var decimal = pattern.Lazy(`^-?(0|[1-9][0-9]*)$`)

func (y *yamlReader) value(v ast.Node) (*node, error) {
	n := &node{line: y.line(v)}
	switch v := v.(type) {
	case *ast.NullNode:
		n.kind = Null
	case *ast.StringNode:
		n.kind, n.text = String, v.Value
	case *ast.LiteralNode:
		n.kind, n.text = String, v.Value.Value
	case *ast.IntegerNode:
		n.kind, n.text = Number, v.Token.Value
		if decimal().MatchString(n.text) {
			if num, err := strconv.ParseInt(n.text, 10, 64); err == nil {
				n.kind, n.num = Int, num
			}
		}
	case *ast.FloatNode:
		n.kind, n.text = Number, v.Token.Value
	case *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = Number, v.GetToken().Value
	case *ast.BoolNode:
		n.kind, n.text = Bool, strconv.FormatBool(v.Value)
	case *ast.SequenceNode:
		n.kind = List
		for _, item := range v.Values {
			i, err := y.value(item)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, i)
		}
	case *ast.MappingNode:
		return n, y.mapping(n, v.Values)
	case *ast.MappingValueNode:
		return n, y.mapping(n, []*ast.MappingValueNode{v})
	case *ast.AnchorNode, *ast.AliasNode:
		return nil, refuse(y.file, n.line, "write the value out", "YAML anchors and aliases are not accepted")
	case *ast.TagNode:
		return nil, refuse(y.file, n.line, "remove the tag", "YAML tags such as %s are not accepted", quote(v.GetToken().Value))
	default:
		return nil, refuse(y.file, n.line, "", "this YAML construct is not accepted")
	}
	return n, nil
}

func (y *yamlReader) mapping(n *node, values []*ast.MappingValueNode) error {
	n.kind = Table
	seen := map[string]int{}
	for _, mv := range values {
		line := y.line(mv.Key)
		name := ""
		switch k := mv.Key.(type) {
		case *ast.StringNode:
			name = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
			name = k.GetToken().Value
		case *ast.MergeKeyNode:
			return refuse(y.file, line, "write the keys out", "YAML merge keys (<<) are not accepted")
		default:
			return refuse(y.file, line, "", "a key must be plain text")
		}
		if first, ok := seen[name]; ok {
			return refuse(y.file, line, "", "duplicate key %s: it stands on line %d too", quote(name), first)
		}
		seen[name] = line
		v, err := y.value(mv.Value)
		if err != nil {
			return err
		}
		n.keys = append(n.keys, entry{name: name, line: line, value: v})
	}
	return nil
}
