// Package cli is the command line: one file for each verb. It parses, calls
// the engine and prints; it decides nothing.
//
// Rules of the output: stdout is data, stderr is for people. A terminal gets
// tables and relative times, a pipe gets tab-separated lines and absolute
// times, --json gets one object with a schema version. Errors are printed in
// one place, here, as "berth: error:" and "berth: hint:".
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/remote/follow"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// Main runs berth with these arguments and returns its exit code.
func Main(args []string) int {
	syscall.Umask(0o077)
	if follow.IsWatch(args) { // no verb for people
		return follow.WatchMain(args[1:], os.Stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	root := newRoot(a)
	root.SetArgs(args)
	return a.report(a.commandLine(root.ExecuteContext(ctx)))
}

// exitCode is an error that only carries an exit code: everything has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// commandLine makes a usage error of what cobra found wrong by itself: whatever
// fails before a verb runs is about the words of the command line.
func (a *app) commandLine(err error) error {
	if err == nil || a.running || jobs.KindOf(err) != jobs.KindUnknown {
		return err
	}
	return &jobs.Error{Kind: jobs.KindUsage, Err: err, Hint: "berth --help"}
}

// report prints an error and returns the exit code it deserves.
func (a *app) report(err error) int {
	if err == nil {
		return jobs.CodeOK
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	c, text, hint := jobs.CodeOf(err), err.Error(), jobs.HintOf(err)
	if a.failCode != 0 {
		c = a.failCode
	}
	// What an interrupted submission left open must be said, wherever the signal
	// has met it; of anything else the signal is all there is to say.
	if errors.Is(err, context.Canceled) && jobs.KindOf(err) != jobs.KindUnclear {
		c, text, hint = jobs.CodeInterrupted, "interrupted", ""
	}
	if a.json {
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"schema_version": schemaVersion, "error": map[string]any{"message": text, "hint": hint, "exit_code": c}})
		return c
	}
	if text == "interrupted" {
		a.say("%s", text)
		return c
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		a.say("error: %s", line)
	}
	if hint != "" {
		a.say("hint: %s", hint)
	}
	return c
}

// usage is the error for a wrong command line.
func usage(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
}

// exitHelp begins the part of a command's help that says how it exits. It is
// cut off from the text and printed after the flags, where people look for it.
const exitHelp = "\nExit status: "

const exitTemplate = `{{with index .Annotations "exit"}}
Exit status:
{{.}}
{{end}}`

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "a contained place on a cluster for every agent task",
		Long: `berth gives every agent task a contained place on a cluster.

A task becomes a Slurm job that runs an Apptainer container with a writable
overlay; a branch, a diff and a record come back. Where there is no Slurm, the
same task runs on this machine.

  berth run fix.md                      run a task file and watch it
  berth submit fix.md                   submit it; prints the job's id
  berth run --image py.sif -- 'pytest'  run a command in a container
  berth render fix.md                   show the job script, submit nothing
  berth ps                              what runs and waits
  berth logs -f ID                      watch a job
  berth cancel ID                       end it

An agent, or a person, can also work in such a place command by command:

  berth exec -- 'cd /srv && make'       run a command; cd and export stay
  berth shell                           a terminal in the same place
  berth cp results.csv :/srv/           copy files in and out
  berth bg start -- ./server            a process that goes on
  berth env ls                          the environments`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2,
		// A bare word that is no verb is a usage error with suggestions.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			if told, _ := cmd.Flags().GetBool("version"); told {
				return a.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().Bool("version", false, "print the version of berth")
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		a.fails(cmd)
		return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: cmd.CommandPath() + " --help"}
	})
	root.AddGroup(&cobra.Group{ID: "jobs", Title: "Jobs:"}, &cobra.Group{ID: "envs", Title: "Environments:"}, &cobra.Group{ID: "other", Title: "Other:"})
	for _, c := range []*cobra.Command{a.runCmd(), a.submitCmd(), a.renderCmd(), a.psCmd(), a.statusCmd(), a.explainCmd(), a.logsCmd(), a.waitCmd(), a.cancelCmd(), a.collectCmd(), a.followCmd(), a.rmCmd()} {
		c.GroupID = "jobs"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{a.execCmd(), a.shellCmd(), a.cpCmd(), a.bgCmd(), a.envCmd(), a.overlayCmd()} {
		c.GroupID = "envs"
		root.AddCommand(c)
	}
	root.SetUsageTemplate(usageTemplate(root))
	root.Annotations = map[string]string{annotationExit: "0 ok, 2 usage, 3 not found, 5 infrastructure, 75 try again, 78 configuration or\ncontainment, 130 interrupted; each command's help has its own."}
	for _, c := range []*cobra.Command{a.imageCmd(), a.templateCmd(), a.configCmd(), a.doctorCmd(), a.gcCmd(), a.versionCmd()} {
		c.GroupID = "other"
		root.AddCommand(c)
	}
	root.SetHelpCommand(a.helpCmd())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args = cobra.ArbitraryArgs
		// cobra's own exits with 0 when it does not know the shell.
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("there is no completion for the shell %q", args[0]),
					Hint: "berth completion --help lists the shells"}
			}
			return cmd.Help()
		}
	}
	a.finish(root)
	return root
}

// Keys of a command's annotations.
const (
	annotationExit = "exit" // its help's part about exit codes
	annotationFail = "fail" // the exit code of its own failures
)

func annotate(c *cobra.Command, key, value string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[key] = value
}

// finish does what all commands have in common.
func (a *app) finish(c *cobra.Command) {
	if long, exit, ok := strings.Cut(c.Long, exitHelp); ok {
		c.Long = strings.TrimRight(long, "\n")
		annotate(c, annotationExit, exit)
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.running, a.verb = true, cmd
			a.fails(cmd)
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		a.finish(sub)
	}
}

// fails notes the exit code of a command's own failures.
func (a *app) fails(c *cobra.Command) {
	if n, err := strconv.Atoi(c.Annotations[annotationFail]); err == nil {
		a.failCode = n
	}
}

// helpCmd is "berth help"; cobra's own exits with 0 when it does not know the
// topic.
func (a *app) helpCmd() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "help about any command",
		Long: "Show the help of berth, or of one of its commands." + "\n" + exitHelp + "0 ok, 2 no such command.",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), strings.Join(args, " "))
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

// unknownCommand is the error for a word that is no verb.
func unknownCommand(parent *cobra.Command, word string) error {
	e := &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown command %q", word), Hint: parent.CommandPath() + " --help lists the commands"}
	if parent.HasParent() {
		e.Msg += " of " + parent.CommandPath()
	}
	if s := parent.SuggestionsFor(word); len(s) > 0 {
		e.Hint = "did you mean: " + parent.CommandPath() + " " + s[0]
	}
	return e
}

// group is a command that only has commands below it.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long + exitHelp + "0 ok, 2 no such command; each command's help has its own.",
		Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	c.AddCommand(commands...)
	return c
}
