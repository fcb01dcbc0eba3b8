// Package cli is the command line: one file for each verb. It parses, calls
// the engine and prints; it decides nothing.
//
// Rules of the output: stdout is data, stderr is for people. A terminal gets
// tables and relative times, a pipe gets tab-separated lines and absolute
// times, --json gets one object with a schema version. Errors are printed in
// one place, here: as "berth: error:" and "berth: hint:", under --json as a
// field of that object.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// Main runs berth with these arguments and returns its exit code.
func Main(args []string) int {
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	root := newRoot(a, args)
	a.args = args
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil {
		run.AwaitLeft() // over a dead link they would outlive this process
	}
	if err == nil {
		err = a.noHelp
	}
	return a.report(a.commandLine(err))
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

// report prints an error and returns the exit code it deserves. Under --json it
// prints the one object of a verb, which has what went wrong, too.
func (a *app) report(err error) int {
	c, text, hint := a.verdict(err)
	switch {
	case a.json:
		if text != "" {
			if a.object == nil {
				a.object = map[string]any{}
			}
			a.object["error"] = errorJSON(c, text, hint)
		}
		if a.object == nil {
			return c
		}
		err := a.encode(a.object)
		if err == nil {
			return c
		}
		if text, hint = "print the result: "+err.Error(), ""; c == jobs.CodeOK {
			c = jobs.CodeInfra
		}
	case text == "":
		return c
	case text == "interrupted":
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

// errorJSON is what --json says of an error.
func errorJSON(code int, text, hint string) map[string]any {
	return map[string]any{"message": text, "hint": hint, "exit_code": code}
}

// verdict is the exit code that an error deserves, and what is to be said of it;
// "" is that all has been said.
func (a *app) verdict(err error) (code int, text, hint string) {
	var own exitCode
	switch {
	case err == nil:
		return jobs.CodeOK, "", ""
	case errors.As(err, &own):
		return int(own), "", ""
	// What an interrupted submission left open must be said, wherever the signal
	// has met it; of anything else the signal is all there is to say.
	case errors.Is(err, context.Canceled) && jobs.KindOf(err) != jobs.KindUnclear:
		return jobs.CodeInterrupted, "interrupted", ""
	}
	if code = jobs.CodeOf(err); a.failCode != 0 {
		code = a.failCode
	}
	return code, err.Error(), jobs.HintOf(err)
}

// usage is the error for a wrong command line.
func usage(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
}

// newRoot is the command berth, with those below it that a command line with
// these arguments may mean.
func newRoot(a *app, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "run tasks, commands and agents in containers on a cluster",
		Long:          rootHelp,
		SilenceErrors: true, SilenceUsage: true,
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
	root.SetFlagErrorFunc(a.flagError)
	alone := a.addCommands(root, args)
	a.setHelp(root)
	help := a.helpCmd()
	a.finish(help)
	root.SetHelpCommand(help)
	root.SetHelpCommandGroupID(familyKept)
	root.SetCompletionCommandGroupID(familyKept)
	if root.CompletionOptions.DisableDefaultCmd = alone; !alone {
		root.InitDefaultCompletionCmd()
		if c, _, err := root.Find([]string{"completion"}); err == nil {
			c.Short, c.Long = "print the completion script of a shell", completionHelp
			c.Example = "  berth completion bash >~/.local/share/bash-completion/completions/berth"
			// cobra's own exits with 0 when it does not know the shell.
			c.Args, c.RunE = cobra.ArbitraryArgs, onlyCommands
		}
	}
	a.finish(root)
	if len(args) > 0 && isCompletion(args[0]) {
		a.addCompletions(root)
	}
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
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if told := (*jobs.Error)(nil); err == nil || errors.As(err, &told) {
				return err
			}
			return wrongArgs(cmd, args)
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.running, a.verb = true, cmd
			a.fails(cmd)
			if err := named(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		a.finish(sub)
	}
}

// wrongArgs is the error of a command whose number of arguments is wrong.
func wrongArgs(cmd *cobra.Command, args []string) error {
	_, takes, _ := strings.Cut(strings.ReplaceAll(cmd.Use, " [flags]", ""), " ")
	msg := cmd.CommandPath() + " needs " + takes
	switch {
	case takes == "":
		return noArgs(cmd, args)
	case len(args) == 1:
		msg = cmd.CommandPath() + " takes " + takes + ", got one argument"
	case len(args) > 1:
		msg = fmt.Sprintf("%s takes %s, got %d arguments", cmd.CommandPath(), takes, len(args))
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: msg, Hint: cmd.CommandPath() + " --help"}
}

// fails notes the exit code of a command's own failures.
func (a *app) fails(c *cobra.Command) {
	if n, err := strconv.Atoi(c.Annotations[annotationFail]); err == nil {
		a.failCode = n
	}
}
