package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `berth runs tasks and coding agents in containers, as Slurm jobs or on this machine.
Usage: berth COMMAND [flags] [arguments]
  berth run --image docker://debian:12 -- 'cat /etc/os-release'   one command
  berth run task.md                                               a task file
  berth exec --image docker://debian:12 -- 'cd /srv && ls'        a place that stays`

const completionHelp = `Print the script that completes berth's commands and flags in a shell.
` + exitHelp + `0 ok, 2 no such shell.`

// The families of commands in "berth --help", in this order: the everyday ones
// first.
const (
	familyRun   = "run"
	familyLook  = "look"
	familyEnv   = "env"
	familySetup = "setup"
	familyNight = "night"
	familyJobs  = "jobs"
	familyKept  = "kept"
)

// addCommands adds the commands of each family. If word is one of them, only that
// one is made: all of them, with their flags, are a fifth of the start of berth.
func (a *app) addCommands(root *cobra.Command, word string) (alone bool) {
	cobra.EnableCommandSorting = false // commands are listed in the order in which one needs them
	type verb struct {
		name    string
		command func(*app) *cobra.Command
	}
	families := []struct {
		id, title string
		verbs     []verb
	}{
		{familyRun, "Run a task, as a job", []verb{
			{"run", (*app).runCmd}, {"submit", (*app).submitCmd}, {"render", (*app).renderCmd}, {"wait", (*app).waitCmd}, {"cancel", (*app).cancelCmd}}},
		{familyLook, "Look at jobs", []verb{{"ps", (*app).psCmd}, {"status", (*app).statusCmd}, {"logs", (*app).logsCmd}, {"explain", (*app).explainCmd}}},
		{familyEnv, "Work in an environment, a container that keeps its files", []verb{
			{"exec", (*app).execCmd}, {"shell", (*app).shellCmd}, {"cp", (*app).cpCmd}, {"bg", (*app).bgCmd}}},
		{familySetup, "Set up", []verb{{"doctor", (*app).doctorCmd}, {"config", (*app).configCmd}}},
		{familyNight, "Agents, reviews and sweeps", []verb{
			{"init", (*app).initCmd}, {"task", (*app).taskCmd}, {"review", (*app).reviewCmd}, {"retry", (*app).retryCmd}, {"schedule", (*app).scheduleCmd},
			{"sweep", (*app).sweepCmd}, {"metric", (*app).metricCmd}, {"agent", (*app).agentCmd}, {"mcp", (*app).mcpCmd}}},
		{familyJobs, "More about jobs", []verb{
			{"top", (*app).topCmd}, {"usage", (*app).usageCmd}, {"collect", (*app).collectCmd}, {"forward", (*app).forwardCmd}, {"ssh-config", (*app).sshConfigCmd},
			{"follow", (*app).followCmd}, {"rm", (*app).rmCmd}, {"network", (*app).networkCmd}}},
		{familyKept, "Environments, layers, images; administration", []verb{
			{"env", (*app).envCmd}, {"overlay", (*app).overlayCmd}, {"image", (*app).imageCmd}, {"template", (*app).templateCmd},
			{"gc", (*app).gcCmd}, {"version", (*app).versionCmd}}},
	}
	for _, f := range families {
		root.AddGroup(&cobra.Group{ID: f.id, Title: f.title})
		alone = alone || slices.ContainsFunc(f.verbs, func(v verb) bool { return v.name == word })
	}
	for _, f := range families {
		for _, v := range f.verbs {
			if !alone || v.name == word {
				c := v.command(a)
				c.GroupID = f.id
				root.AddCommand(c)
			}
		}
	}
	return alone
}

// setHelp has help printed as [usageText] has it, and refused for a word that
// is no command: --help alone would hide the mistake.
func (a *app) setHelp(root *cobra.Command) {
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprintln(c.OutOrStderr(), usageText(c))
		return err
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c.HasSubCommands() {
			if c, a.noHelp = helpTopic(c, c.Flags().Args()); a.noHelp != nil {
				return
			}
		}
		help(c, args)
	})
}

// usageText is the part of a command's help that follows its description.
func usageText(c *cobra.Command) string {
	var parts []string
	add := func(title, text string) {
		if text = strings.TrimRight(text, "\n "); text != "" {
			parts = append(parts, title+":\n"+text)
		}
	}
	if c.HasParent() {
		add("Usage", useLines(c))
	}
	add("Examples", c.Example)
	for _, g := range c.Groups() {
		add(g.Title, listCommands(c, g.ID))
	}
	add("Commands", listCommands(c, ""))
	if c.HasSubCommands() {
		parts = append(parts, c.CommandPath()+" COMMAND --help shows the examples, flags and exit codes of a command.")
	}
	if !c.HasSubCommands() || doesItself(c) {
		parts = append(parts, strings.TrimRight(listFlags(c.LocalFlags()), "\n "))
	}
	add("Exit status", c.Annotations[annotationExit])
	if more := pagesOf(c); more != "" {
		parts = append(parts, "Read more: "+more)
	}
	return strings.Join(parts, "\n\n")
}

// doesItself reports whether a command with others below it does something by itself.
func doesItself(c *cobra.Command) bool { return strings.Contains(c.Use, "[flags]") }

// useLines are the ways to call a command, which stand between bars in its Use.
func useLines(c *cobra.Command) string {
	var b strings.Builder
	for use := range strings.SplitSeq(c.Use, " | ") {
		switch {
		case c.HasSubCommands() && !doesItself(c):
			use += " COMMAND"
		case !strings.Contains(use, "[flags]") && !c.HasSubCommands():
			use += " [flags]"
		}
		fmt.Fprintf(&b, "  %s %s\n", c.Parent().CommandPath(), use)
	}
	for _, alias := range c.Aliases {
		fmt.Fprintf(&b, "  %s %s [flags]\n", c.Parent().CommandPath(), alias)
	}
	return b.String()
}

func listCommands(c *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.GroupID == group && !sub.Hidden {
			fmt.Fprintf(&b, "  %-*s  %s\n", sub.NamePadding()-1, sub.Name(), sub.Short)
		}
	}
	return b.String()
}

// exitHelp begins the part of a command's help that says how it exits. It is
// cut off from the text and printed after the flags, where people look for it.
const exitHelp = "\nExit status: "

// helpTopic is the command below another one that these words name.
func helpTopic(c *cobra.Command, words []string) (*cobra.Command, error) {
	topic, rest, err := c.Find(words)
	switch {
	case err != nil:
		return nil, err
	case len(rest) > 0 && topic.HasSubCommands():
		return nil, unknownCommand(topic, rest[0])
	case len(rest) > 0:
		return nil, &jobs.Error{
			Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("%s has no commands below it, got %q", topic.CommandPath(), rest[0]),
			Hint: topic.CommandPath() + " --help",
		}
	}
	topic.InitDefaultHelpFlag()
	return topic, nil
}

// unknownCommand is the error for a word that is no verb.
func unknownCommand(parent *cobra.Command, word string) error {
	e := &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown command %q", word), Hint: parent.CommandPath() + " --help lists the commands"}
	if parent.HasParent() {
		e.Msg += " of " + parent.CommandPath()
	}
	near := nearCommand(parent, word)
	if near != "" {
		e.Hint = "did you mean: " + parent.CommandPath() + " " + near
	}
	return e
}

// nearCommand is the command below another one, or one of more names, that a word
// seems to mean; "" is none.
func nearCommand(parent *cobra.Command, word string, names ...string) string {
	for _, c := range parent.Commands() {
		if slices.Contains(c.SuggestFor, word) {
			return c.Name()
		}
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return strict.Nearest(word, names)
}

// flagError is the error for flags that a command cannot read.
func (a *app) flagError(c *cobra.Command, err error) error {
	a.fails(c)
	// It may stand behind the flag that ended the reading.
	words := a.args
	if i := slices.Index(words, "--"); i >= 0 {
		words = words[:i]
	}
	a.lines = slices.Contains(words, "--batch")
	a.json = a.json || a.lines || slices.Contains(words, "--json")
	e := &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: c.CommandPath() + " --help"}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := strict.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			e.Hint = "did you mean: --" + near
		}
	}
	return e
}

// group is a command that only has commands below it.
func group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long + "\n" + exitHelp + "0 ok, 2 no such command; each command's help has its own.", Example: example,
		Args: cobra.ArbitraryArgs, RunE: onlyCommands,
	}
	c.AddCommand(commands...)
	return c
}

// onlyCommands runs a command that only has commands below it.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}
