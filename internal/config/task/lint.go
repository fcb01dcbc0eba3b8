package task

import (
	"slices"
	"strings"

	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/internal/workspace"
	"berth/jobs"
)

// Linted is a task file that was looked at, and what was found in it.
type Linted struct {
	Task  jobs.Task
	Found []strict.Finding // in the order of the file
	doc   *strict.Doc      // nil where it could not be read
}

// Lint reads a task file and finds all that is wrong with it, and what is likely to be:
// a check that is missing, a bound that lets through what few mean to let through.
func Lint(file string, data []byte) *Linted {
	doc, t, err := read(file, data)
	if err != nil {
		return &Linted{Found: strict.Located(file, err)}
	}
	under := doc.At("agent")
	if t.Workspace != nil {
		under = doc.At("workspace")
	}
	if len(t.Done) == 0 && (t.Workspace != nil || t.Agent != nil) {
		doc.Warnf(under.Line(), `add for example done = ["go test ./..."], before the first table`, "no done: nothing checks what the task leaves")
	}
	if t.DoneOver == jobs.DoneOverTask {
		doc.Warnf(doc.At("done_over").Line(), "", `done_over is "task": a task that wants to can turn every check green`)
	}
	if t.Agent != nil {
		lintAgent(doc, &t)
	}
	if t.Workspace != nil {
		lintScope(doc)
	}
	for _, f := range secrets.In(string(data)) {
		doc.Warnf(f.Line, `name the variable alone, env = ["NAME"], or use a credential`,
			"the line holds what looks like a secret, %s: the file is part of the job's record", f.What)
	}
	for _, v := range items(doc.At("terminal", "env")) {
		if name := v.Source(); !strings.Contains(name, "=") && secrets.Name(name) && t.Agent != nil {
			doc.Warnf(v.Line(), "use credentials, which the task never sees (berth config)",
				"env hands %s to the agent, which can read it and send it away", name)
		}
	}
	return &Linted{Task: t, Found: doc.Findings(), doc: doc}
}

// Errors is how many of the findings are no warnings.
func (l *Linted) Errors() (n int) {
	for _, f := range l.Found {
		if !f.Warning {
			n++
		}
	}
	return n
}

// Add adds what was found by other means than reading.
func (l *Linted) Add(warning bool, message, hint string) {
	f := strict.Finding{Warning: warning, Message: message, Hint: hint}
	if l.doc != nil {
		f.Line = l.doc.LineOf(message)
	}
	l.Found = append(l.Found, f)
	slices.SortStableFunc(l.Found, func(a, b strict.Finding) int { return a.Line - b.Line })
}

func lintAgent(doc *strict.Doc, t *jobs.Task) {
	use := doc.At("agent", "use")
	if t.Prompt == "" {
		doc.Warnf(use.Line(), "write below the front matter what it is to do", "agent %s has no prompt", t.Agent.Name)
	}
	c := t.Caps
	if doc.Err() != nil {
		return // what ends it may be what could not be read
	}
	if c.Requests == 0 && c.Tokens == 0 && c.USD == 0 && c.Turns == 0 && c.Wall == 0 && t.Resources.Time == 0 {
		doc.Warnf(use.Line(), `add for example [caps] max_wall = "2h", or time in [resources]`,
			"nothing ends agent %s: no cap, and no time", t.Agent.Name)
	}
}

// lintScope warns of patterns that name files which programs of the user's obey.
func lintScope(doc *strict.Doc) {
	all := items(doc.At("workspace", "scope"))
	if more := doc.At("workspaces"); more.Is(strict.List) {
		for _, t := range more.Items("tables") {
			all = append(all, items(t.Key("scope"))...)
		}
	}
	for _, v := range all {
		if name := workspace.NamesControl(v.Source()); name != "" {
			doc.Warnf(v.Line(), "leave it out, unless the task is about these files",
				"scope lets changes of %s through, which agents, git or the machines that check a push obey", name)
		}
	}
}

// items are the strings of a list, whatever else is wrong with it.
func items(v strict.Value) []strict.Value {
	if !v.Is(strict.List) {
		return nil
	}
	return slices.DeleteFunc(v.Items("strings"), func(i strict.Value) bool { return !i.Is(strict.String) })
}
