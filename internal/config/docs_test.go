package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated part of docs/configuration.md")

const (
	page  = "../../docs/configuration.md"
	begin = "<!-- The tables below are made from the table of keys: go test ./internal/config -update -->\n"
	end   = "<!-- end of the generated tables -->\n"
)

// sections are the tables of the page, by the tables of the file.
var sections = []struct{ title, table, text string }{
	{"Outside of any table", "", ""},
	{"[network]", "network", "What can be reached from inside: see [network.md](network.md). `terminal.network` (`host` is `open`) and `terminal.allow` are older names of these keys, which are read as well. " +
		"What a project's file and a profile say of the first four is a bound: it holds beside what you say, also over a flag, and never opens anything."},
	{"[network.build]", "network.build", "What image builds reach: see [network.md](network.md#builds). A mode here is stronger than a task file's list without a mode."},
	{"[terminal]", "terminal", "Where the commands of environments run; what counts for jobs as well is marked."},
	{"[terminal.daytona]", "terminal.daytona", ""},
	{"[resources]", "resources", "Of jobs that do not say otherwise, and of environments that are held in an allocation."},
	{"[slurm]", "slurm", "Likewise. `extra` takes what a [task file](task-file.md#slurm) takes."},
	{"[caps]", "caps", "Upper bounds: a job with an agent or with a credential for a model has these where it says nothing, and one that asks for more is refused. See [Credentials and caps](#credentials-and-caps)."},
	{"[review]", "review", "What is asked of reviews: see [agents.md](agents.md#who-may-approve)."},
	{"[notify]", "notify", "How you are told that jobs have ended: see [Notices](#notices)."},
	{"[mcp]", "mcp", "What agents may do that are connected by [berth mcp](mcp.md)."},
	{"[max]", "max", "Bounds of what a project's file may ask for; yours only."},
}

func generated() string {
	var b strings.Builder
	code := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + s + "`"
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n### %s\n\n", s.title)
		if s.text != "" {
			b.WriteString(s.text + "\n\n")
		}
		b.WriteString("| key | variable, flag | type | default | for | jobs | project | meaning |\n|---|---|---|---|---|---|---|---|\n")
		for _, k := range usable() {
			if k.table() != s.table {
				continue
			}
			var by []string
			for _, e := range k.Env {
				by = append(by, code(e))
			}
			if k.Flag != "" {
				by = append(by, code("--"+k.Flag))
			}
			typ := k.Type.String()
			if k.Type == Word {
				words := make([]string, len(k.Words))
				for i, w := range k.Words {
					words[i] = code(w)
				}
				typ = strings.Join(words, " ")
			}
			yes := map[bool]string{true: "yes"}
			project := k.Allow
			switch {
			case k.Bound:
				project = "as a bound"
			case k.Allow == free:
				project = "yes"
			case k.Allow == never:
				project = "no"
			default:
				project = code(project)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", code(k.leaf()), strings.Join(by, " "), typ, code(k.Default), strings.Join(k.Places, " "), yes[k.Jobs], project, k.Meaning)
		}
	}
	b.WriteString("\n### Refused by name\n\nThese are known, and berth has no such power, or another one. The value in the second column says what berth does in any case,\nand is taken.\n\n| key | taken | why it is refused |\n|---|---|---|\n")
	for i := range Keys() {
		if k := &Keys()[i]; k.Refused != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Name, code(k.Only), k.Refused)
		}
	}
	for _, p := range foreignPrefixes {
		fmt.Fprintf(&b, "| `terminal.%s*` | | %s |\n", p[0], p[1])
	}
	b.WriteString("\n")
	return b.String()
}

// TestDocs: the user's page has the table that the program has, and its
// examples are accepted.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the page has no place for the tables")
	}
	if want := generated(); old != want {
		if !*update {
			t.Fatal("the page is not that of the table: go test ./internal/config -update")
		}
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
	}
	examples := 0
	for i, block := range strings.Split(head+tail, "```") {
		lang, text, _ := strings.Cut(block, "\n")
		if i%2 == 0 || lang != "toml" {
			continue
		}
		examples++
		layer := layerUser
		if strings.HasPrefix(text, "# berth.toml") {
			layer = layerProject
		}
		if _, err := parse("/home/ada/.config/berth/config.toml", []byte(text), layer); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if examples < 2 {
		t.Errorf("only %d examples", examples)
	}
	for _, w := range allowWords {
		if !strings.Contains(head+tail, "`"+w+"`") {
			t.Errorf("the page does not say what %s allows", w)
		}
	}
}
