package task

import (
	"fmt"
	"strings"
	"testing"
)

// refusedFiles are whole files, and all that is said about them.
var refusedFiles = []struct{ name, text, want string }{
	{"empty", "", `fix.md:1: no front matter: the first line must be "+++" (TOML) or "---" (YAML)`},
	{"no fence", "# Fix\n", `fix.md:1: no front matter: the first line must be "+++" (TOML) or "---" (YAML)`},
	{"blank line first", "\n+++\n+++\n", `fix.md:1: no front matter: the first line must be "+++" (TOML) or "---" (YAML)`},
	{"open fence", "+++\nname = 1\n---\n", `fix.md:1: the front matter has no end: no line "+++" closes the one here`},
	{"binary", "+++\n+++\n\n\x00", "fix.md:4: the file is binary: it holds a NUL byte"},
	{"UTF-16", "\xff\xfe+\x00", "fix.md: the file is UTF-16\nhint: save the file as UTF-8"},
	{"Latin-1", "+++\n+++\ncaf\xe9\n", "fix.md:3: the text is not UTF-8\nhint: save the file as UTF-8"},
	{"lone CR", "+++\nname = 1 # a\rb\n+++\n", "fix.md:2: the line holds the control character U+000D\nhint: remove it"},
	{"too long", "+++\n+++\n" + strings.Repeat("x", 1<<20), "fix.md: the file has more than 1MiB"},
	{"much front", "+++\n" + strings.Repeat("#\n", 1<<16) + "+++\n", "fix.md:1: the front matter has more than 64KiB"},
	{"deep", headTOML + "x = " + strings.Repeat("[", 1000) + "\n+++\n", "fix.md:4: more than 200 brackets are open"},
	{"dotted", headTOML + strings.Repeat("a.", 1000) + "a = 1\n+++\n", "fix.md:4: a key has too many parts"},
	{"nothing said", "+++\n+++\n", "fix.md:1: missing key \"name\": add for example name = \"fix the parser\"\n" +
		`fix.md:1: missing key "command" in [agent]: add for example command = ["my-agent", "--print"]`},
	{"nothing said, YAML", "---\n---\n", "fix.md:1: missing key \"name\": add for example name: \"fix the parser\"\n" +
		`fix.md:1: missing key "command" in agent: add for example command: ["my-agent", "--print"]`},
	{"no command", "+++\nname = \"x\"\n\n[agent]\n+++\n", `fix.md:4: missing key "command" in [agent]: add for example command = ["my-agent", "--print"]`},
	{"name", "+++\nname = 3\n[agent]\ncommand = []\n+++\n", "fix.md:2: name must be a string, found the number 3: put it in quotes: \"3\"\nfix.md:4: agent.command is empty"},
	{"name of many lines", "+++\nname = \"\"\"\na\nb\"\"\"\nagent.command = true\n+++\n", "fix.md:2: name holds a control character\n" +
		"fix.md:5: agent.command must be a string (for the shell) or a list of strings, found true: put it in quotes: \"true\"\n" +
		"hint: remove line breaks, tabs and escape characters from it"},
	{"long name", "+++\nname = \"" + strings.Repeat("é", 201) + "\"\nagent.command = \"x\"\n+++\n", "fix.md:2: name has more than 200 characters"},
	{"blank name", "+++\nname = \" a\"\nagent.command = \"x\"\n+++\n", `fix.md:2: name begins or ends with white space: " a"`},
	{"in the order of the file", "+++\nnam = 1\n[terminal]\nimage = 1\n[resources]\ncpu = 1\n[agent]\ncommand = 1\n+++\n",
		"fix.md:1: missing key \"name\": add for example name = \"fix the parser\"\n" +
			"fix.md:2: unknown key \"nam\": did you mean \"name\"?\n" +
			"fix.md:4: terminal.image must be a string, found the number 1: put it in quotes: \"1\"\n" +
			"fix.md:6: unknown key \"cpu\" in [resources]: did you mean \"cpus\"?\n" +
			"fix.md:8: agent.command must be a string (for the shell) or a list of strings, found the number 1: put it in quotes: \"1\""},
	{"many", headTOML + "[slurm]\nextra = [" + strings.Repeat("\n\"x\",", 13) + "]\n+++\n", many()},
	{"a key in a string", headTOML + "done = ['''\nmemmory = 1\n[x]\n''']\nmemmory = 1\n+++\n", `fix.md:8: unknown key "memmory": did you mean "memory" in [resources]?`},
	{"a table inside", headTOML + "[resources.time]\nx = 1\n+++\n", `fix.md:4: resources.time must be a duration such as "2h", or a whole number of seconds, found a table`},
	{"duplicate in a table", headTOML + "[resources]\ncpus = 1\n\"cpus\" = 1\n+++\n", `fix.md:6: duplicate key "resources.cpus"`},

	{"YAML unknown", headYAML + "terminal:\n  # c\n  imag: x\n---\n", `fix.md:6: unknown key "imag" in terminal: did you mean "image"?`},
	{"YAML unknown table", headYAML + "resource:\n  cpus: 1\n---\n", `fix.md:4: unknown key "resource": did you mean resources:?`},
	{"YAML after a block", headYAML + "done:\n- |\n  memmory: 1\n\n  x\n- >-\n  y\n\n- \"a\n\n  b\"\nmemmory: 1\n---\n", `fix.md:15: unknown key "memmory": did you mean "memory" in resources?`},
	{"YAML elsewhere", headYAML + "resources:\n  partition: x\n  done: [x]\n---\n", "fix.md:5: unknown key \"partition\" in resources: did you mean \"partition\" in slurm?\n" +
		`fix.md:6: unknown key "done" in resources: did you mean "done" outside of any table?`},
	{"YAML duplicate", headYAML + "terminal:\n  overlay: a\n  overlay: b\n---\n", `fix.md:6: duplicate key "overlay": it stands on line 5 too`},
	{"YAML number for a name", "---\nname: 1.10\nagent:\n  command: x\n---\n", `fix.md:2: name must be a string, found the number 1.10: put it in quotes: "1.10"`},
	{"YAML bool for a name", "---\nname: true\nagent:\n  command: x\n---\n", `fix.md:2: name must be a string, found true: put it in quotes: "true"`},
	{"YAML nothing for a name", "---\nname:\nagent:\n  command: x\n---\n", `fix.md:2: name must be a string, found nothing: remove the key or give it a value`},
	{"YAML octal", headYAML + "resources:\n  cpus: 010\n---\n", `fix.md:5: resources.cpus must be a whole number, found the number 010`},
	{"YAML underscore", headYAML + "resources:\n  memory: 1_000\n---\n", `fix.md:5: resources.memory must be a size such as "512MiB", or a whole number of MiB, found the number 1_000`},
	{"YAML time of day", headYAML + "resources:\n  time: 1:30\n---\n", `fix.md:5: resources.time: "1:30" is not a duration: write for example 90s, 30m or 2h`},
	{"YAML yes", headYAML + "terminal:\n  bind:\n  - source: /x\n    writable: yes\n---\n", `fix.md:7: writable in terminal.bind[0] must be true or false, found the string "yes"`},
	{"YAML bind", headYAML + "terminal:\n  bind:\n  - source: /x\n    destination: x\n---\n", `fix.md:7: terminal.bind[0] has the destination "x", which is not an absolute path`},
	{"YAML env mapping", headYAML + "terminal:\n  env:\n    A: b\n---\n", `fix.md:5: terminal.env must be a list of "NAME" or "NAME=VALUE", found a table`},
	{"YAML env item", headYAML + "terminal:\n  env:\n  - A: b\n---\n", `fix.md:6: terminal.env[0] must be a string, found a table`},
	{"YAML anchor", headYAML + "done: &a [x]\nartifacts: *a\n---\n", "fix.md:4: YAML anchors and aliases are not accepted\nhint: write the value out"},
	{"YAML merge", headYAML + "slurm:\n  <<: {qos: a}\n---\n", "fix.md:5: YAML merge keys (<<) are not accepted\nhint: write the keys out"},
	{"YAML tag", headYAML + "done: !!set {a}\n---\n", "fix.md:4: YAML tags such as \"!!set\" are not accepted\nhint: remove the tag"},
	{"YAML explicit key", headYAML + "? done\n: [x]\n---\n", "fix.md:4: a key must be plain text"},
	{"YAML documents", headYAML + "...\ndone: [x]\n---\n", "fix.md:5: more than one YAML document"},
	{"YAML list", "---\n- a\n---\n", "fix.md:2: the keys must be a YAML mapping, found a list"},
	{"YAML syntax", headYAML + "done: [x\n---\n", "fix.md:4: not valid YAML: sequence end token ']' not found"},
	{"YAML indent", headYAML + "slurm:\n  qos: a\n account: b\n---\n", "fix.md:6: not valid YAML: value is not allowed in this context"},
}

// many is what is said of a file with thirteen mistakes.
func many() string {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, "fix.md:%d: slurm.extra[%d] must begin with --, found \"x\"\n", 6+i, i)
	}
	return b.String() + "fix.md: and 3 more"
}

func TestRefusedFiles(t *testing.T) {
	for _, c := range refusedFiles {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("fix.md", []byte(c.text))
			if got := said(t, err); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}
