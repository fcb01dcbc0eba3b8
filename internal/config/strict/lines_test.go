package strict

import (
	"fmt"
	"strings"
	"testing"
)

// flat lists every key and item of a tree with its line.
func flat(n *node, path string, out *[]string) {
	for _, e := range n.keys {
		at := strings.TrimPrefix(path+"."+e.name, ".")
		*out = append(*out, fmt.Sprintf("%s:%d", at, e.line))
		flat(e.value, at, out)
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		*out = append(*out, fmt.Sprintf("%s:%d", at, item.line))
		flat(item, at, out)
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		format     Format
		text, want string
	}{
		{TOML, "a = \"\"\"\nb = 1\n# \\\"\"\" c = 2\n\"\"\"\nd = 1", "a:1 d:5"},
		{TOML, "a = '''\n'' [b]\n'''''\nd = 1", "a:1 d:4"},
		{TOML, "a = [ # ]\n  1,\n\n  [\n 'x' ] ]\nb.c = 1\nb.d = { e = [\n] }", "a:1 a[0]:2 a[1]:4 a[1][0]:5 b:6 b.c:6 b.d:7 b.d.e:7"},
		{TOML, "[[a]]\nb = 1\n[a.c]\n[[a]]\nb = 2\n[a.c]\nd = 3\n", "a:1 a[0]:1 a[0].b:2 a[0].c:3 a[1]:4 a[1].b:5 a[1].c:6 a[1].c.d:7"},
		{TOML, "[x.y]\nz = 1\n[x]\nw = 2\n", "x:1 x.y:1 x.y.z:2 x.w:4"},
		{TOML, "\"a\\\"=\" = 1\n'b.c'.d = 2\n", "a\"=:1 b.c:2 b.c.d:2"},
		{YAML, "a: |\n  b: 1\n\n  c: 2\n\nd: 1\n", "a:1 d:6"},
		{YAML, "a: \"x\n\n  b: 1\"\nd: 'y\n  # '\ne: p\n  q\nf: 1", "a:1 d:4 e:6 f:8"},
		{YAML, "# c\n\na:\n# c\n- x # c\n-\n  b: 1\n  c:\n    d\n- [1,\n   2]\ne: >+\n\n  z\n\nf:\ng: 1", "a:3 a[0]:5 a[1]:7 a[1].b:7 a[1].c:8 a[2]:10 a[2][0]:10 a[2][1]:11 e:12 f:16 g:17"},
		{YAML, "a: {b: 1,\n  c: {d: 2,\n e: 3}}\n\"f g\":\n  'h': 1", "a:1 a.b:1 a.c:2 a.c.d:2 a.c.e:3 f g:4 f g.h:5"},
	} {
		parse := parseTOML
		if c.format == YAML {
			parse = parseYAML
		}
		root, err := parse("f", c.text)
		if err != nil {
			t.Errorf("%v\n%s", err, c.text)
			continue
		}
		var got []string
		flat(root, "", &got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("\n got %s\nwant %s\n%s", s, c.want, c.text)
		}
	}
}
