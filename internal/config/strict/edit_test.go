package strict

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pelletier/go-toml/v2"
)

// Everything else stays as it stands.
func TestSetTOML(t *testing.T) {
	const file = "# mine\n\ntarget = 'a' # why\n\n# of the terminal\n[terminal]\n  timeout = 5   # short\nlist = [\n  \"a\", # first\n  \"b\",\n]\n\n# below\n[targets.lake]\nhost = \"h\"\n"
	for _, c := range []struct{ name, file, key, value, want string }{
		{"replaced", file, "terminal.timeout", `"1h"`, strings.Replace(file, "= 5 ", `= "1h" `, 1)},
		{"a list of many lines", file, "terminal.list", `[]`, strings.Replace(file, "[\n  \"a\", # first\n  \"b\",\n]", "[]", 1)},
		{"at the root", file, "target", `"b"`, strings.Replace(file, "'a'", `"b"`, 1)},
		{"new at the root", file, "profile", `"p"`, strings.Replace(file, "# why\n", "# why\nprofile = \"p\"\n", 1)},
		{"new in a table", file, "terminal.cwd", `"/"`, strings.Replace(file, "\n]\n", "\n]\ncwd = \"/\"\n", 1)},
		{"a new table", file, "slurm.qos", `"q"`, file + "\n[slurm]\nqos = \"q\"\n"},
		{"a table below", file, "targets.lake.terminal.cwd", `"/"`, file + "\n[targets.lake.terminal]\ncwd = \"/\"\n"},
		{"a last table", file, "targets.lake.profile", `"p"`, file + "profile = \"p\"\n"},
		{"an empty file", "", "terminal.cwd", "1", "[terminal]\ncwd = 1\n"},
		{"an empty file, root", "", "target", "1", "target = 1\n"},
		{"only a table", "[terminal]\n", "target", "1", "target = 1\n\n[terminal]\n"},
		{"no line break at the end", "[terminal]\na = 1", "terminal.b", "2", "[terminal]\na = 1\nb = 2\n"},
		{"a comment at the end", "[terminal]\n# nothing yet", "terminal.b", "2", "[terminal]\nb = 2\n# nothing yet"},
		{"dotted", "terminal.a = 1\n[x]\n", "terminal.b", "2", "terminal.a = 1\nterminal.b = 2\n[x]\n"},
		{"dotted, replaced", "terminal . \"a\"=1", "terminal.a", "2", "terminal . \"a\"=2"},
		{"Windows", "a = 1\r\n[t]\r\nb = 2 # x\r\n", "t.b", "3", "a = 1\r\n[t]\r\nb = 3 # x\r\n"},
		{"byte order mark", "\ufeffa = 1\n", "a", "3", "\ufeffa = 3\n"},
		{"a string like a table", "a = '''\n[t]\nb = 1\n'''\n[t]\nb = 2\n", "t.b", "3", "a = '''\n[t]\nb = 1\n'''\n[t]\nb = 3\n"},
		{"a name in quotes", "", "x y.b", "3", "[\"x y\"]\nb = 3\n"},
	} {
		got, err := SetTOML("f.toml", []byte(c.file), strings.Split(c.key, "."), c.value)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\nnot\n%s", c.name, err, got, c.want)
		}
	}
	for _, c := range []struct{ name, file, key, value string }{
		{"broken", "a = \n", "a", "1"},
		{"inline", "t = {a = 1}\n", "t.a", "2"},
		{"new in inline", "t = {a = 1}\n", "t.b", "2"},
		{"no table", "t = 1\n", "t.b", "2"},
		{"not a value", "", "t.b", "2\nc = 3\n[x"},
		{"a list of tables", "[[t]]\na = 1\n", "t.b", "2"},
	} {
		if got, err := SetTOML("f.toml", []byte(c.file), strings.Split(c.key, "."), c.value); err == nil {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestUnsetTOML(t *testing.T) {
	for _, c := range []struct {
		file, key, want string
		was             bool
	}{
		{"a = 1\n# x\n[t]\nb = 2 # gone\nc = 3\n", "t.b", "a = 1\n# x\n[t]\nc = 3\n", true},
		{"a = [\n 1,\n] # x\nb = 1", "a", "b = 1", true},
		{"a = 1", "a", "", true},
		{"a = 1\n", "b", "a = 1\n", false},
	} {
		got, was, err := UnsetTOML("f.toml", []byte(c.file), strings.Split(c.key, "."))
		if err != nil || string(got) != c.want || was != c.was {
			t.Errorf("%v %v\n%s\nnot\n%s", err, was, got, c.want)
		}
	}
	for _, f := range []string{"t = {a = 1}\n", "a = \n", "[t.a]\nb = 1\n"} {
		if got, _, err := UnsetTOML("f.toml", []byte(f), []string{"t", "a"}); err == nil {
			t.Errorf("%s", got)
		}
	}
}

// FuzzEdit: one value changes, and no other.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{
		"a = 1\n[t]\nb = 2\n", "t.b = 1\n", "t = {b = 1}\n", "[[t]]\nb=1\n", "a='''x\n[t]'''\n[t.u]\nb=[1,\n2]#x\n[t]\n", "\"a\".'b'=\"\\\"]\"\n[ t ]", "[t.b]\n", "x=[{b=1},\n{b=2}]\n[t]#c\nb=1985-06-18 17:04:07Z\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var before map[string]any
		if err := toml.Unmarshal([]byte(s), &before); err != nil {
			return
		}
		out, err := SetTOML("f", []byte(s), []string{"t", "b"}, "77")
		if err != nil {
			return
		}
		var after map[string]any
		if err := toml.Unmarshal(out, &after); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		table, _ := after["t"].(map[string]any)
		if table["b"] != int64(77) {
			t.Fatalf("it is %v in\n%s", table["b"], out)
		}
		if old, ok := before["t"].(map[string]any); ok {
			old["b"] = int64(77)
		} else {
			before["t"] = map[string]any{"b": int64(77)}
		}
		if !cmp.Equal(before, after, cmpopts.EquateNaNs()) {
			t.Fatalf("more than that has changed:\n%s\n---\n%s", s, out)
		}
		gone, was, err := UnsetTOML("f", out, []string{"t", "b"})
		if err != nil || !was {
			t.Fatalf("%v, %v\n%s", was, err, out)
		}
		var rest map[string]any
		if err := toml.Unmarshal(gone, &rest); err != nil {
			t.Fatalf("%v\n%s", err, gone)
		}
	})
}
