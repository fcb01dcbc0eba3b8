// Package adapters has what berth knows of the programs of agents, as data: how each is
// called, how its events are read, what they tell. A table of TOML is one; users have
// their own in their configuration directory. docs/agents.md has its keys.
package adapters

import (
	"embed"

	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

//go:embed builtin/*.toml
var builtin embed.FS

var shelf = &strict.Shelf{
	Kind: "agent", Noun: "an agent", Form: nameForm, Letters: "lower-case letters, digits and dashes, at most 40",
	Builtin: builtin, In: "builtin", Else: "or name its command: command in [agent]",
}

// Where an agent has its prompt from.
const (
	PromptStdin = "stdin"
	PromptFile  = "file" // that [PromptWord] in its arguments names
)

// PromptWord is the argument that becomes the path of the prompt's file.
const PromptWord = "{prompt_file}"

// Adapter is one, as its file says.
type Adapter struct {
	Name        string
	File        string // the user's; "" is built in
	Like        string // the built-in one that it begins with
	Description string
	Program     string // looked for in the image; "" is that a task has to name a command
	Args        []string
	Last        []string // arguments that stand behind all others
	Prompt      string   // [PromptStdin] or [PromptFile]
	Events      string   // the format of what it writes
	Versions    []string // the first and the last one that it was tried with
	VersionArgs []string
	Env         []string // NAME=VALUE
	Needs       []string // other programs
	Hosts       []string // beside those of its credentials
	Credentials []string // of which it can use one
	// Options are the arguments for values, in which "{}" is the value.
	Options map[string][]string
	Sandbox Sandbox
	Exit    map[string]string // the reason of an exit code
	Tells   jobs.Tells
	Home    map[string]string
	Text    []byte // the file
}

// Sandbox is an agent's own.
type Sandbox struct {
	Off, OffEnv []string // how it is switched off, with its questions
	On          []string // how it is left on; none is that it cannot be
}

// The values that have options.
const (
	OptionModel    = "model"
	OptionMaxTurns = "max_turns"
	OptionMaxUSD   = "max_usd"
	OptionSession  = "session"
)

var optionNames = []string{OptionModel, OptionMaxTurns, OptionMaxUSD, OptionSession}

// Origin says where an adapter comes from, for people.
func (a *Adapter) Origin() string {
	if a.File == "" {
		return "built in"
	}
	return a.File
}

var nameForm = pattern.Lazy(`^[a-z0-9][a-z0-9-]{0,39}$`)

// CheckName refuses what cannot name an adapter.
func CheckName(name string) error { return shelf.CheckName(name) }

// Find returns the adapter of a name: the user's own in dir, else the built-in one.
func Find(dir, name string) (*Adapter, error) {
	file, text, err := shelf.Find(dir, name)
	switch {
	case err != nil:
		return nil, err
	case file == "":
		return ready(name)
	}
	return Parse(file, name, text)
}

// ready is a built-in one; nil is that there is none.
func ready(name string) (*Adapter, error) {
	text, ok := shelf.Ready(name)
	if !ok {
		return nil, nil
	}
	a, err := Parse(name+strict.Ext, name, text)
	if err != nil {
		return nil, err
	}
	a.File = ""
	return a, nil
}

// All returns all adapters by name; those that cannot be read are in the error.
func All(dir string) ([]*Adapter, error) {
	return strict.FindAll(shelf.Names(dir), func(name string) (*Adapter, error) { return Find(dir, name) })
}

// countOfTokens is a key that is no secret.
var countOfTokens = pattern.Lazy(`(?m)^[ \t]*tokens[ \t]*=`)

// Parse reads an adapter's file, which errors name.
func Parse(file, name string, text []byte) (*Adapter, error) {
	plain := countOfTokens().ReplaceAllString(string(text), "tells =")
	if err := secrets.Refuse(file, plain, "adapters are recorded with each job"); err != nil {
		return nil, err
	}
	doc, err := strict.DecodeTOML(file, text)
	if err != nil {
		return nil, err
	}
	a := read(doc.Root())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	a.Name, a.File, a.Text = name, file, text
	return a, nil
}
