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

// A verb is a command right below berth. Its line in lists stands here, so that these
// need nothing else of it.
type verb struct {
	name, short string
	command     func(*app) *cobra.Command
	hidden      bool
}

// verbFamilies are all verbs, in the order in which one needs them.
func verbFamilies() []verbFamily {
	return []verbFamily{
		{familyRun, "Run a task, as a job", []verb{
			{name: "run", short: "run a task or command as a job: show its output, wait for its end", command: (*app).runCmd},
			{name: "submit", short: "submit a task or command as a job and return; prints the job's id", command: (*app).submitCmd},
			{name: "render", short: "print the job script; submit nothing", command: (*app).renderCmd},
			{name: "wait", short: "wait until jobs have ended; the exit code says how", command: (*app).waitCmd},
			{name: "cancel", short: "end jobs, queued or running", command: (*app).cancelCmd},
		}},
		{familyLook, "Look at jobs", []verb{
			{name: "ps", short: "list jobs that are queued or running", command: (*app).psCmd},
			{name: "status", short: "show the state of one job in full, or of several as a table", command: (*app).statusCmd},
			{name: "logs", short: "show the output of a job", command: (*app).logsCmd},
			{name: "explain", short: "say why a job is still queued, or why it ended as it did", command: (*app).explainCmd},
		}},
		{familyEnv, "Work in an environment, a container that keeps its files", []verb{
			{name: "exec", short: "run a command in an environment, or beside the task of a job", command: (*app).execCmd},
			{name: "shell", short: "open a terminal in an environment, or beside the task of a job", command: (*app).shellCmd},
			{name: "cp", short: "copy files into or out of an environment", command: (*app).cpCmd},
			{name: "bg", short: "start and watch background processes in an environment", command: (*app).bgCmd},
		}},
		{familySetup, "Set up", []verb{
			{name: "doctor", short: "check this machine, its Slurm and its container programs", command: (*app).doctorCmd},
			{name: "config", short: "show and change settings: your own, and a project's", command: (*app).configCmd},
		}},
		{familyNight, "Agents, reviews and sweeps", []verb{
			{name: "init", short: "prepare a repository: an example task, a section for agents", command: (*app).initCmd},
			{name: "task", short: "write, check and list task files", command: (*app).taskCmd},
			{name: "review", short: "review the results of jobs, and merge them", command: (*app).reviewCmd},
			{name: "retry", short: "run the task of an ended job again, with a note from review", command: (*app).retryCmd},
			{name: "schedule", short: "submit a task again and again, or later, without a daemon", command: (*app).scheduleCmd},
			{name: "sweep", short: "run many tasks from one definition: a grid, seeds, the rows of a table", command: (*app).sweepCmd},
			{name: "metric", short: "tell metrics of the sweep's task that runs this", command: (*app).metricCmd, hidden: true},
			{name: "agent", short: "show the agents that berth knows, such as claude", command: (*app).agentCmd},
			{name: "mcp", short: "serve berth to agents by the Model Context Protocol", command: (*app).mcpCmd},
		}},
		{familyJobs, "More about jobs", []verb{
			{name: "top", short: "watch jobs, environments, sweeps and reviews on one screen", command: (*app).topCmd},
			{name: "usage", short: "sum what jobs have used: turns, tokens, cost, core-hours", command: (*app).usageCmd},
			{name: "collect", short: "fetch results of an ended job that did not come back", command: (*app).collectCmd},
			{name: "forward", short: "reach a service inside, such as a notebook, at a port of this machine", command: (*app).forwardCmd},
			{name: "ssh-config", short: "let ssh, rsync and editors reach environments and jobs", command: (*app).sshConfigCmd},
			{name: "follow", short: "record how jobs ended and begin their retries, from a crontab", command: (*app).followCmd},
			{name: "rm", short: "remove the records of ended jobs", command: (*app).rmCmd},
			{name: "network", short: "show what jobs reach, and let one reach more", command: (*app).networkCmd},
		}},
		{familyKept, "Environments, layers, images; administration", []verb{
			{name: "env", short: "list, stop, snapshot and remove environments", command: (*app).envCmd},
			{name: "overlay", short: "manage overlays: writable layers that keep a task's files", command: (*app).overlayCmd},
			{name: "image", short: "fetch, build, check and remove container images", command: (*app).imageCmd},
			{name: "template", short: "manage templates: an image with software that a script installs", command: (*app).templateCmd},
			{name: "gc", short: "clean up what crashed nodes and killed processes have left", command: (*app).gcCmd},
			{name: "version", short: "print the version", command: (*app).versionCmd},
		}},
	}
}

type verbFamily struct {
	id, title string
	verbs     []verb
}

// addCommands adds the commands of each family. If args name one of them, only that
// one is made, and if they ask for the list of all, no more of each than its line
// there: the flags of all of them are a quarter of the start of berth.
func (a *app) addCommands(root *cobra.Command, args []string) (alone bool) {
	cobra.EnableCommandSorting = false // commands are listed in the order of the families
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	all := verbFamilies()
	for _, f := range all {
		root.AddGroup(&cobra.Group{ID: f.id, Title: f.title})
		alone = alone || slices.ContainsFunc(f.verbs, func(v verb) bool { return v.name == word })
	}
	listed := asksForList(args)
	for _, f := range all {
		for _, v := range f.verbs {
			if alone && v.name != word {
				continue
			}
			c := &cobra.Command{Use: v.name, Run: func(*cobra.Command, []string) {}} // what runs nothing is not listed
			if !listed {
				c = v.command(a)
			}
			c.GroupID, c.Short, c.Hidden = f.id, v.short, v.hidden
			root.AddCommand(c)
		}
	}
	return alone
}

// asksForList reports whether a command line asks for the list of all commands and
// for nothing else.
func asksForList(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"--help", "-h", "help"}, args[0])
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
func group(use, long, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Long: long + "\n" + exitHelp + "0 ok, 2 no such command; each command's help has its own.", Example: example,
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
