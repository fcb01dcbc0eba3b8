package adapters

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/templates"
)

// Asked is what a task wants of its agent.
type Asked struct {
	Command    jobs.Command // in place of the adapter's; empty is that
	Model      string
	MaxTurns   int
	MaxUSD     jobs.USD
	OwnSandbox bool
}

// Settled is what a job has of it.
type Settled struct {
	Command jobs.Command
	Env     []string // NAME=VALUE, below the task's own
	Agent   jobs.Agent
}

// promptVar is the variable that has the path of the prompt's file inside.
const promptVar = "BERTH_PROMPT_FILE"

var modelForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,127}$`)

// Settle makes the command of a job, and what its node has to know of the agent.
func (a *Adapter) Settle(o Asked) (Settled, error) {
	s := Settled{Env: slices.Clone(a.Env), Agent: jobs.Agent{Name: a.Name, From: a.File, Events: a.Events, Tells: a.Tells, Exit: a.Exit, Home: a.Home,
		Model: o.Model, Versions: a.Versions}}
	if a.Program != "" && len(a.VersionArgs) > 0 {
		s.Agent.VersionArgv = append([]string{a.Program}, a.VersionArgs...)
	}
	if o.Model != "" && !modelForm().MatchString(o.Model) {
		return Settled{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.100q cannot name a model", o.Model)}
	}
	if !o.Command.Empty() {
		if o.Model != "" || o.OwnSandbox {
			return Settled{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "[agent] has a command, so that model and own_sandbox have no place",
				Hint: "say them in the command"}
		}
		s.Command = o.Command
		return s, nil
	}
	if a.Program == "" {
		return Settled{}, &jobs.Error{Kind: jobs.KindUsage, Msg: "agent " + a.Name + " has no command of its own",
			Hint: "add command to [agent], beside use"}
	}
	argv := append([]string{a.Program}, a.Args...)
	box := a.Sandbox
	switch {
	case !o.OwnSandbox:
		argv = append(argv, box.Off...)
		s.Env = append(s.Env, box.OffEnv...)
		s.Agent.Sandbox = a.off()
	case len(box.On) == 0:
		return Settled{}, &jobs.Error{Kind: jobs.KindConfig, Msg: "agent " + a.Name + " has no sandbox of its own that works in a container",
			Hint: "leave own_sandbox out: the container is around it"}
	default:
		argv = append(argv, box.On...)
		s.Agent.Sandbox = a.Name + ": its own permissions and sandbox are on"
	}
	for _, one := range []struct {
		name, value string
		must        bool
	}{
		{OptionModel, o.Model, true},
		{OptionMaxTurns, number(o.MaxTurns), false},
		{OptionMaxUSD, amount(o.MaxUSD), false},
	} {
		switch {
		case one.value == "":
		case len(a.Options[one.name]) == 0 && one.must:
			return Settled{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("agent %s has no option for %s", a.Name, one.name),
				Hint: "leave it out, or give the agent one: [options] in a file of your own (berth agent show " + a.Name + ")"}
		default:
			argv = append(argv, a.option(one.name, one.value)...)
		}
	}
	s.Command = command(slices.Concat(argv, a.Last))
	if len(a.Options[OptionSession]) > 0 {
		s.Agent.Resume = command(slices.Concat(argv, a.option(OptionSession, jobs.SessionWord), a.Last))
	}
	return s, nil
}

// option are the arguments for a value.
func (a *Adapter) option(name, of string) (argv []string) {
	for _, w := range a.Options[name] {
		argv = append(argv, strings.Replace(w, value, of, 1))
	}
	return argv
}

// command is an argv; one with the path of the prompt's file is text for a shell, as
// only the inside knows that path.
func command(argv []string) jobs.Command {
	if !slices.Contains(argv, PromptWord) {
		return jobs.Command{Argv: argv}
	}
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = templates.Quote(w); w == PromptWord {
			words[i] = `"$` + promptVar + `"`
		}
	}
	return jobs.Command{Shell: "exec " + strings.Join(words, " ")}
}

// off says what was switched off, for the receipt.
func (a *Adapter) off() string {
	how := slices.Clone(a.Sandbox.Off)
	for _, kv := range a.Sandbox.OffEnv {
		name, _, _ := strings.Cut(kv, "=")
		how = append(how, name)
	}
	if len(how) == 0 {
		return ""
	}
	return a.Name + ": its own permissions and sandbox are off (" + strings.Join(how, " ") + ")"
}

func number(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func amount(u jobs.USD) string {
	if u <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(u), 'f', -1, 64)
}
