package config

import (
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/jobs"
)

// Type is what a key may hold.
type Type int

// The types. In brackets what [Value.V] holds then.
const (
	Text    Type = iota // a line of text [string]
	Word                // one of Key.Words [string]
	Bool                // [bool]
	Count               // a whole number from Key.Least on [int]
	Size                // "512MiB", or a whole number of MiB; 0 is no limit [jobs.Bytes]
	Time                // "90s", or a whole number of seconds; 0 is no limit [time.Duration]
	Path                // a path of this machine, relative to the file's directory [string]
	Image               // a path, or a reference with "://" [string]
	List                // strings [[]string]
	Pairs               // a table of strings, or a list of "NAME=VALUE" [[]string]
	GPUs                // a whole number, or "TYPE:NUMBER" [string]
	Tables              // a table of tables of strings, or a list of "NAME.OPTION=VALUE" [[]string]
	Dollars             // "0.50", or a number [jobs.USD]
)

// String names the type as the user's page does.
func (t Type) String() string {
	return [...]string{
		"text", "word", "true or false", "whole number", "size", "duration",
		"path", "image", "list", "table", "number or `TYPE:NUMBER`", "tables", "US dollars",
	}[t]
}

// What a project's file may do with a key. Anything else than these is the
// word with which the user allows it.
const (
	free  = ""      // set it
	never = "never" // nothing: it is the user's alone
)

// Key is one key of the configuration.
type Key struct {
	Name    string   // dotted, such as "terminal.timeout"
	Old     string   // a name that it had before, which is read as well; "" is none
	Env     []string // the variables that stand for it, the one to name first
	Flag    string   // the flag that stands for it, without dashes
	Type    Type
	Words   []string // of the type Word
	Least   int      // of the type Count
	Most    int      // likewise
	Default string   // as it is shown; "" is none
	Places  []string // the backends it is for; none: all of them
	Jobs    bool     // it counts for jobs
	NotEnvs bool     // it does not count for environments
	Meaning string   // one line
	Part    string   // the part of a place that it is, by its name in [keys.Fields]; "" is none
	Secret  bool     // its value is never shown

	// Allow is free, never, or the word of projects.DIR.allow with which a
	// project may set it. Safe tells of a value that needs no word; nil is that
	// none is.
	Allow string
	Safe  func(g guard, v, base any) bool
	// Bound is that a project's file says it beside the user, and not in the user's
	// place: see [jobs.NetworkBound]. It needs no word for that. Allow is then about
	// a target that the project chooses.
	Bound bool

	// Refused is why no other value than Only is taken: the key is known, and
	// berth has no such power. Alien is the value that the launcher of another
	// program sets without anybody having asked for it: as a variable it is no
	// mistake.
	Refused string
	Only    string
	Alien   string

	// Check complains about a value of the right type, and may change it.
	Check func(v strict.Value, got any) any
}

// Keys is the table of all keys outside of [targets] and [projects], in the
// order in which they are shown. It is made once, and not in every start: "berth --help"
// has no use for it.
var Keys = sync.OnceValue(func() []Key {
	return slices.Concat(placeKeys, networkKeys, terminalKeys, of("terminal"), dockerKeys, sshKeys, cloudKeys, foreignKeys,
		of("resources"), of("slurm"), of("caps"), reviewKeys, notifyKeys, mcpKeys, maxKeys)
})

// safe judges the values of [keys.Fields] that a project may set with a word; of
// limits it is [bounded].
var safe = map[string]func(g guard, v, base any) bool{"slurm.account": same, "slurm.extra": subset}

// of makes keys of the fields of a place that the configuration has.
func of(table string) (out []Key) {
	var types jobs.Place // of the fields: one for all, as it is large
	for i := range keys.Fields {
		f := &keys.Fields[i]
		if f.Meaning == "" || f.Table() != table {
			continue
		}
		k := Key{Name: f.Name, Flag: f.Flag, Words: f.Words, Most: f.Most, Jobs: true, NotEnvs: f.JobsOnly,
			Meaning: f.Meaning, Part: f.Name, Allow: f.Allow, Safe: safe[f.Name]}
		switch f.In(&types).(type) {
		case *int:
			k.Type = Count
		case *jobs.Bytes:
			k.Type = Size
		case *time.Duration:
			k.Type = Time
		case *bool:
			k.Type = Bool
		case *jobs.USD:
			k.Type = Dollars
		case *[]string:
			k.Type = List
		}
		switch {
		case f.Name == "resources.gpus":
			k.Type = GPUs
		case f.Words != nil:
			k.Type = Word
		}
		if table == "caps" {
			k.Least = 1
		}
		if k.Allow == "limits" {
			k.Least, k.Safe = 1, bounded
		}
		if f.Check != nil {
			k.Check = func(v strict.Value, got any) any {
				if !f.Fits(v) {
					return nil
				}
				return got
			}
		}
		if table == "terminal" && !f.Promise { // what is asked of a scheduler is for all
			for _, b := range append(jobs.Backends(), programs) {
				if keys.Has(f.Envs, b) {
					k.Places = append(k.Places, b)
				}
			}
		}
		out = append(out, k)
	}
	return out
}

// Find returns a key by its name, or the one that it had before; or nil.
func Find(name string) *Key {
	for i := range Keys() {
		if name != "" && (Keys()[i].Name == name || Keys()[i].Old == name) {
			return &Keys()[i]
		}
	}
	return nil
}

// ofUser tells of a table that no target has.
func ofUser(table string) bool {
	return table == "max" || table == "notify" || table == "caps" || table == "review"
}

// table and leaf are the two parts of a key's name.
func (k *Key) table() string {
	table, _ := cutKey(k.Name)
	return table
}

func (k *Key) leaf() string {
	_, leaf := cutKey(k.Name)
	return leaf
}

func cutKey(name string) (table, leaf string) {
	i := strings.LastIndexByte(name, '.')
	return name[:max(i, 0)], name[i+1:]
}

// programs is the word of Key.Places for every backend that is a program.
const programs = "programs"

// isFor tells whether the key counts for a backend; "" and "auto" are one that contains
// here.
func (k *Key) isFor(backend string) bool {
	auto := backend == "" || backend == jobs.BackendAuto
	return len(k.Places) == 0 || slices.ContainsFunc(k.Places, func(b string) bool {
		return b == backend || b == programs && jobs.IsProgram(backend) || auto && jobs.CapabilitiesOf(b).Here()
	})
}

// names returns what the table's keys are called.
func names() []string {
	out := make([]string, len(Keys()))
	for i := range Keys() {
		out[i] = Keys()[i].Name
	}
	return out
}

// Backends are the values of terminal.backend.
var backendWords = task.Backends()
