package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/engine"
	"berth/internal/agents/adapters"
	"berth/internal/config"
	"berth/internal/config/strict"
	"berth/internal/network/credentials"
	"berth/internal/sys/disk"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// newTaskKeys are the flags of keys that a new task file takes.
var newTaskKeys = []string{"base", "scope", "image", "template", "backend", "cpus", "memory", "time", "gpus", "network", "allow", "credential",
	"max-wall", "max-turns", "max-usd", "max-tokens", "max-requests", "label"}

// usualWall bounds the agent of a new task that nothing else bounds.
const usualWall = "2h"

// newTask is a task file that is being written.
type newTask struct {
	file, name     string
	agent, command string
	done, checks   []string
	prompt         string
	keys           []strict.Flag
}

func (a *app) taskNewCmd() *cobra.Command {
	var n newTask
	var where taskFlags
	c := &cobra.Command{
		Use: "new [flags] [NAME]", Short: "write a task file, from questions or from an issue's text",
		Long: `Write a task file and print its path. On a terminal it asks for what no flag says; else
the prompt is the text on stdin, such as that of an issue, and its first heading is the
name where none is given.

The file is NAME.md in the repository's directory tasks/ where there is one (berth init),
else in the current directory; --file names another one. None is overwritten. What is
written has passed berth task lint: where it would not, nothing is written.

An agent gets a bound of time where no cap is given, and a network that reaches its model
alone: by the credential of the configuration that it can use, where there is one.
` + exitHelp + `0 written, 2 there is such a file already, or the task would be refused, 3 no
such agent or directory.`,
		Example: `  berth task new                                   # asks
  gh issue view 41 --json title,body --jq '"# \(.title)\n\n\(.body)"' |
    berth task new --agent claude --done 'go test ./...' --scope 'src/**'
  berth task new nightly --command 'make bench' --time 1h </dev/null`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "more than one name",
					Hint: "put it in quotes: " + cmd.CommandPath() + " 'fix the parser'"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n.name = strings.Join(args, "")
			n.keys = keysGiven(cmd, keyFlags(), newTaskKeys)
			return a.newTask(cmd, &n)
		},
	}
	fs := c.Flags()
	fs.StringVar(&n.file, "file", "", "write `FILE`")
	fs.StringVar(&n.agent, "agent", "", "the agent `NAME` does it (berth agent ls)")
	fs.StringVar(&n.command, "command", "", "the command `LINE` does it, with the prompt on stdin")
	fs.StringArrayVar(&n.done, "done", nil, "the command `LINE` must succeed at the end; repeatable")
	fs.StringArrayVar(&n.checks, "check", nil, "`TEXT` is a point of the list \"Done when\"; repeatable")
	addKeyFlags(c, keyFlags(), newTaskKeys)
	where.addWhere(c)
	a.jsonFlag(c)
	return c
}

func (a *app) newTask(cmd *cobra.Command, n *newTask) error {
	if n.agent != "" && n.command != "" {
		return usage("--agent and --command: give one of them")
	}
	if i := slices.IndexFunc(n.keys, func(f strict.Flag) bool { return f.Table == "workspace" }); i >= 0 && !n.inRepository() {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--%s is of a repository, and the task file would be in none", n.keys[i].Name),
			Hint: "write it there: cd, or --file REPOSITORY/NAME.md"}
	}
	cfg, err := a.config(cmd)
	if err != nil {
		return err
	}
	var person *bufio.Reader // who answers questions; nil is no person
	if isTerminal(a.stdin) && a.errTTY && !a.json {
		person = bufio.NewReader(a.stdin)
		err = a.askTask(n, person)
	} else {
		err = n.read(a.stdin)
	}
	if err != nil {
		return err
	}
	if n.agent == "" && n.command == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "nothing says who does the task", Hint: "--agent NAME (berth agent ls), or --command LINE"}
	}
	slug := jobs.Slug(n.name)
	if n.name == "" || slug == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task has no name", Hint: "berth task new NAME, or a text that begins with a heading"}
	}
	if n.file == "" {
		n.file = filepath.Join(newTaskDir(), slug+".md")
	}
	if err := jobs.CheckText("the task file's name", n.file); err != nil {
		return err
	}
	if _, err := os.Lstat(n.file); err == nil {
		return taskThere(n.file)
	}
	if err := n.settle(cfg); err != nil {
		return err
	}
	data := n.text()
	l := a.lint(cmd, &taskFlags{}, cfg, n.file, data)
	for asked := 0; ; asked++ {
		at := slices.IndexFunc(l.Found, func(f strict.Finding) bool { return !f.Warning })
		if at < 0 {
			break
		}
		f := l.Found[at]
		if person == nil || asked == maxAsked || !strings.Contains(f.Message, engine.NoImage) || !a.askImage(n, person) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "nothing is written, because the task would be refused: " + f.Message, Hint: f.Hint}
		}
		data = n.text()
		l = a.lint(cmd, &taskFlags{}, cfg, n.file, data)
	}
	if err := disk.Create(n.file, data, 0o600); errors.Is(err, fs.ErrExist) {
		return taskThere(n.file)
	} else if err != nil {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "write the task file " + n.file, Err: disk.Bare(err)}
	}
	for _, f := range l.Found {
		a.say("%s:%d: warning: %s", n.file, f.Line, f.Message)
	}
	if a.json {
		return a.printJSON(map[string]any{"file": n.file, "name": n.name, "findings": append([]strict.Finding{}, l.Found...)})
	}
	_, err = fmt.Fprintln(a.stdout, n.file)
	return err
}

func taskThere(file string) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: file + " is there already", Hint: "give another name, or --file FILE"}
}

// newTaskDir is where a new task file goes.
func newTaskDir() string {
	for _, dir := range []string{tasksDir, filepath.Join(repositoryTop("."), tasksDir)} {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return dir
		}
	}
	return "."
}

// repositoryTop is the directory at or above dir that has a .git, relative as dir is;
// "" is that there is none.
func repositoryTop(dir string) string {
	abs, err := filepath.Abs(dir)
	for up := dir; err == nil; up, abs = filepath.Join(up, ".."), filepath.Dir(abs) {
		if _, err := os.Lstat(filepath.Join(abs, ".git")); err == nil {
			return up
		}
		if abs == filepath.Dir(abs) {
			break
		}
	}
	return ""
}

// read takes the prompt from stdin.
func (n *newTask) read(in io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(in, strict.MaxFile+1))
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the text of the task", Err: err}
	}
	n.prompt = strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n"))
	if n.name == "" {
		n.name = titleOf(n.prompt)
	}
	if n.prompt == "" && n.agent != "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "stdin has no text for agent " + n.agent, Hint: "gh issue view NUMBER | berth task new ..."}
	}
	return nil
}

// titleOf is a name out of a text: its first line with words, without the marks of a
// heading.
func titleOf(text string) string {
	const most = 72
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimLeft(jobs.Printable(strings.TrimSpace(line)), "#"))
		if jobs.Slug(line) == "" {
			continue
		}
		if r := []rune(line); len(r) > most {
			line = strings.TrimSpace(string(r[:most]))
		}
		return line
	}
	return ""
}

// askTask asks a person for what no flag says.
func (a *app) askTask(n *newTask, in *bufio.Reader) error {
	ended := false
	ask := func(text, usual string) string {
		if usual != "" {
			text += " [" + usual + "]"
		}
		_, _ = fmt.Fprintf(a.stderr, "%s: ", text)
		line, err := in.ReadString('\n')
		ended = ended || err != nil
		return cmp.Or(strings.TrimSpace(line), usual)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(n.keys, func(f strict.Flag) bool { return f.Name == name })
	}
	add := func(k keyFlag, values ...string) {
		if len(values) > 0 && values[0] != "" {
			n.keys = append(n.keys, strict.Flag{Name: k.name, Table: k.table, Key: k.key, Kind: k.kind, Values: values})
		}
	}
	if n.name == "" {
		n.name = ask("Name, such as: fix the parser", "")
	}
	if n.agent == "" && n.command == "" {
		n.agent = ask("Agent (berth agent ls)", "claude")
	}
	_, _ = fmt.Fprintln(a.stderr, "What is to be done? End with a line that is a dot.")
	for !ended {
		line, err := in.ReadString('\n')
		if ended = err != nil; strings.TrimSpace(line) == "." {
			break
		}
		n.prompt += line
	}
	n.prompt = strings.TrimSpace(n.prompt)
	for len(n.checks) < maxAsked && !ended {
		check := ask("Done when (a point; empty: no more)", "")
		if check == "" {
			break
		}
		n.checks = append(n.checks, check)
	}
	if len(n.done) == 0 {
		if line := ask("Command that must succeed at the end, such as: go test ./... (empty: none)", ""); line != "" {
			n.done = []string{line}
		}
	}
	for _, k := range keyFlags() {
		switch {
		case has(k.name):
		case k.name == "scope" && n.inRepository():
			add(k, strings.Fields(ask("Paths that may change, such as: src/** go.mod (empty: all)", ""))...)
		case k.name == "image" && !has("template"):
			add(k, ask("Image (empty: that of the configuration)", ""))
		}
	}
	if ended {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the answers ended before the last question: nothing is written"}
	}
	return nil
}

// askImage asks for an image where there has to be one, and reports whether one was named.
func (a *app) askImage(n *newTask, in *bufio.Reader) bool {
	_, _ = fmt.Fprint(a.stderr, "The configuration has no image, and the task needs one, such as docker://debian:12: ")
	line, _ := in.ReadString('\n')
	name := strings.TrimSpace(line)
	if line == "" {
		return false // the answers have ended
	}
	if name != "" {
		k := keyFlags()[slices.IndexFunc(keyFlags(), func(k keyFlag) bool { return k.name == "image" })]
		n.keys = append(n.keys, strict.Flag{Name: k.name, Table: k.table, Key: k.key, Kind: k.kind, Values: []string{name}})
		n.absolute()
	}
	return true
}

// maxAsked bounds how often a question is asked again.
const maxAsked = 50

// absolute makes the path of an image that of the file: one of the command line is another.
func (n *newTask) absolute() {
	for i, f := range n.keys {
		if f.Name == "image" && !filepath.IsAbs(f.Values[0]) {
			abs, err := filepath.Abs(f.Values[0])
			if _, serr := os.Stat(abs); err == nil && serr == nil {
				n.keys[i].Values = []string{abs}
			}
		}
	}
}

// settle adds what a task of this agent needs here, where nothing is said of it.
func (n *newTask) settle(cfg *config.Config) error {
	n.absolute()
	if n.agent == "" {
		return nil
	}
	ad, err := adapters.Find(config.AgentsDir(), n.agent)
	if err != nil {
		return err
	}
	said := func(table string, names ...string) bool {
		return slices.ContainsFunc(n.keys, func(f strict.Flag) bool { return f.Table == table && (names == nil || slices.Contains(names, f.Key)) })
	}
	add := func(table, key string, kind strict.Kind, values ...string) {
		n.keys = append(n.keys, strict.Flag{Table: table, Key: key, Kind: kind, Values: values})
	}
	if !said("caps") && !said("resources", "time") {
		add("caps", "max_wall", strict.String, usualWall)
	}
	backend := cfg.Get("terminal.backend").String()
	if i := slices.IndexFunc(n.keys, func(f strict.Flag) bool { return f.Name == "backend" }); i >= 0 {
		backend = n.keys[i].Values[0]
	}
	if jobs.CapabilitiesOf(backend).Bare {
		add("agent", "own_sandbox", strict.Bool, strconv.FormatBool(len(ad.Sandbox.On) > 0))
		return nil
	}
	have := cfg.Credentials()
	if i := slices.IndexFunc(have, func(c jobs.Credential) bool { return slices.Contains(ad.Credentials, c.Name) }); i >= 0 && !said("", "credentials") {
		add("", "credentials", strict.List, have[i].Name)
	}
	if said("", "credentials") || said("network") {
		return nil
	}
	hosts := slices.Clone(ad.Hosts)
	ready := credentials.Ready()
	for _, name := range ad.Credentials[:min(1, len(ad.Credentials))] {
		if u, err := url.Parse(ready[name].Upstream); err == nil && u.Hostname() != "" {
			hosts = append(hosts, u.Hostname())
		}
	}
	if len(hosts) == 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "nothing says what agent " + n.agent + " reaches",
			Hint: "--allow NAME for each server, --credential NAME, or --network open"}
	}
	add("network", "allow", strict.List, hosts...)
	return nil
}

// inRepository reports whether the file is, or will be, in a repository, which its task works on then.
func (n *newTask) inRepository() bool {
	dir := newTaskDir()
	if n.file != "" {
		dir = filepath.Dir(n.file)
	}
	return repositoryTop(dir) != ""
}

// text is the file.
func (n *newTask) text() []byte {
	var b strings.Builder
	b.WriteString("+++\nname = " + strict.StringLiteral(n.name) + "\n")
	if len(n.done) > 0 {
		b.WriteString("done = " + listLiteral(n.done) + "\n")
	}
	n.table(&b, "")
	b.WriteString("\n[agent]\n")
	if n.agent != "" {
		b.WriteString("use = " + strict.StringLiteral(n.agent) + "\n")
	} else {
		b.WriteString("command = " + strict.StringLiteral(n.command) + "\n")
	}
	n.table(&b, "agent")
	if n.inRepository() {
		b.WriteString("\n[workspace]\n")
		n.table(&b, "workspace")
	}
	seen := []string{"", "agent", "workspace"}
	for _, f := range n.keys {
		if !slices.Contains(seen, f.Table) {
			seen = append(seen, f.Table)
			b.WriteString("\n[" + f.Table + "]\n")
			n.table(&b, f.Table)
		}
	}
	b.WriteString("+++\n")
	if n.prompt != "" {
		b.WriteString("\n" + n.prompt + "\n")
	}
	checks := n.checks
	if len(checks) == 0 && n.prompt != "" && len(engine.Checklist(n.prompt)) == 0 {
		for _, line := range n.done {
			checks = append(checks, "`"+strings.Join(strings.Fields(line), " ")+"` succeeds")
		}
		checks = append(checks, "the change does what is asked above, and nothing else")
	}
	if len(checks) > 0 {
		b.WriteString("\n## Done when\n\n")
		for _, c := range checks {
			b.WriteString("- [ ] " + strings.Join(strings.Fields(c), " ") + "\n")
		}
	}
	return []byte(b.String())
}

// table writes the keys of a table.
func (n *newTask) table(b *strings.Builder, table string) {
	for _, f := range n.keys {
		if f.Table != table {
			continue
		}
		value := strict.StringLiteral(f.Values[0])
		switch {
		case f.Kind == strict.List:
			value = listLiteral(f.Values)
		case f.Kind == strict.Bool:
			value = f.Values[0]
		case f.Kind == strict.Int:
			if _, err := strconv.ParseInt(f.Values[0], 10, 64); err == nil {
				value = f.Values[0]
			}
		}
		b.WriteString(f.Key + " = " + value + "\n")
	}
}

func listLiteral(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strict.StringLiteral(w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
