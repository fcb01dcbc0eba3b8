package strict

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
)

// checkLines walks a tree and holds it to the one thing that can be told from
// outside: what occurs once in the source stands on the line that it is said
// to stand on, and no line lies outside the file or before its parent's.
func checkLines(t *testing.T, src string, n *node) {
	t.Helper()
	lines := strings.Split(src, "\n")
	on := func(text string, line int, reach int) {
		t.Helper()
		if line < 1 || line > len(lines) {
			t.Fatalf("%q: line %d of %d\n%s", text, line, len(lines), src)
		}
		if text != "" && !strings.Contains(text, "\n") && strings.Count(src, text) == 1 && !strings.Contains(strings.Join(lines[line-1:min(line-1+reach, len(lines))], "\n"), text) {
			t.Fatalf("%q is not on line %d\n%s", text, line, src)
		}
	}
	var walk func(n *node)
	walk = func(n *node) {
		on("", n.line, 1)
		for _, e := range n.keys {
			on(e.name, e.line, 1)
			walk(e.value)
		}
		for _, i := range n.items {
			if i.kind == String {
				on(i.text, i.line, len(lines)) // a block may begin lines below its mark
			}
			walk(i)
		}
	}
	walk(n)
}

// plain makes of a value what the library does; of a number that is not whole,
// and of a date, only where it stands counts.
func plain(n *node) any {
	switch n.kind {
	case Table:
		m := map[string]any{}
		for _, e := range n.keys {
			m[e.name] = plain(e.value)
		}
		return m
	case List:
		l := []any{}
		for _, i := range n.items {
			l = append(l, plain(i))
		}
		return l
	case String:
		return n.text
	case Int:
		return n.num
	case Bool:
		return n.text == "true"
	default:
		return n.kind
	}
}

// plainOf does the same to what the library has read.
func plainOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plainOf(v[k])
		}
	case []any:
		for i := range v {
			v[i] = plainOf(v[i])
		}
	case float64:
		return Number
	case time.Time, toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return Date
	}
	return v
}

var tomlSeeds = []string{
	"a = 1\nb = \"\"\"\nc = 2\n\"\"\"\nd = 3\n",
	"a = '''\nb = '' '\n'''''\nc = 1",
	"a = \"\"\"x\\\n  y\\\"\"\"\"\"\"\nb = 1",
	"[a.\"b.c\".'d']\ne.f = [1, # x ]\n 'g',\n [2, {h = \"#\"}]]\n",
	"[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3\n[[a.e]]\nf = 1979-05-27 07:32:32\n[[a.e]]\n",
	"\"\\u0061\" = inf # [x]\n\"\" = 0x1F\n[ q . w ]\n",
	"a = {b = 1, c = {d = [ {e = 1}, {e = 2} ]}}\nf.g = true\nf.h = 1_0\n",
	"a = {\n b = 1, # c\n d = \"\\e\",\n}\n",
	"x = [[[[]]]]\n#y = 1\n",
	"\n[agent] # c\ncommand = \"\"\"\n[x]\ny = 1\"\"\" # \"\"\"\nz=1",
}

func FuzzTOML(f *testing.F) {
	for _, s := range tomlSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s, err := clean("f", []byte(s))
		if err != nil || checkKeys("f", s) != nil {
			return
		}
		root, err := parseTOML("f", s)
		if err != nil {
			if strings.HasPrefix(err.Error(), "f: ") {
				t.Errorf("%v, without a line\n%s", err, s)
			}
			return
		}
		var want map[string]any
		if err := toml.Unmarshal([]byte(s), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(plainOf(want), plain(root)); d != "" {
			t.Errorf("%s\n%s", d, s)
		}
		checkLines(t, s, root)
	})
}

var yamlSeeds = []string{
	"a: 1\nb: |\n  c: 2\n\n  d\ne: 3\n",
	"a: \"x\n  y\n\n  z\"\nb: 'p\n\n  q'\nc: plain\n  more\nd: 1\n",
	"# c\na:\n- b\n-\n  c\n- d: 1\n  e: 2\n# x\nf: [g, # y\n  h,\n  {i: j}]\nk:\n",
	"a: >-\n  folded\n  text\n\n\nb: {c: 1,\n  d: 2}\n",
	"a: &x 1\nb: *x\n", "<<: {a: 1}\n", "a: !!str 1\n", "? a\n: b\n", "a: 1\na: 2\n",
	"a: 010\nb: 0x10\nc: 1_000\nd: 1:30\ne: on\nf: ~\ng: .inf\nh: 1.10\n",
	"\"a b\": 1\n'c': 2\n1: 3\ntrue: 4\n", "a: 1\n...\nb: 2\n", "- a\n- b\n", "", "\n\n",
	"a:\n  - |\n    x\n    y\n  - z\n  - - 1\n    - 2\n",
}

func FuzzYAML(f *testing.F) {
	for _, s := range yamlSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s, err := clean("f", []byte(s))
		if err != nil || checkKeys("f", s) != nil {
			return
		}
		root, err := parseYAML("f", s)
		if err != nil {
			return
		}
		checkLines(t, s, root)
	})
}
