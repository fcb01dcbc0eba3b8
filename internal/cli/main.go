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
	"strings"
	"syscall"

	"berth/jobs"

	"github.com/spf13/cobra"
)

// Main runs berth with these arguments and returns its exit code.
func Main(args []string) int {
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.report(err)
}

// exitCode is an error that only carries an exit code: everything has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints an error and returns the exit code it deserves.
func (a *app) report(err error) int {
	if err == nil {
		return jobs.CodeOK
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	c := jobs.CodeOf(err)
	if errors.Is(err, context.Canceled) {
		c = jobs.CodeInterrupted
	}
	hint := jobs.HintOf(err)
	if a.json {
		_ = json.NewEncoder(a.stderr).Encode(map[string]any{"schema_version": schemaVersion, "error": map[string]any{"message": err.Error(), "hint": hint, "exit_code": c}})
		return c
	}
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		_, _ = fmt.Fprintf(a.stderr, "berth: error: %s\n", line)
	}
	if hint != "" {
		_, _ = fmt.Fprintf(a.stderr, "berth: hint: %s\n", hint)
	}
	return c
}

// usage is the error for a wrong command line.
func usage(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
}

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
  berth cancel ID                       end it`,
		SilenceErrors: true, SilenceUsage: true,
		SuggestionsMinimumDistance: 2,
		// A bare word that is no verb is a usage error with suggestions.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			e := &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unknown command %q", args[0]), Hint: "berth --help lists the commands"}
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				e.Hint = "did you mean: berth " + s[0]
			}
			return e
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error(), Hint: cmd.CommandPath() + " --help"}
	})
	root.AddGroup(&cobra.Group{ID: "jobs", Title: "Jobs:"}, &cobra.Group{ID: "other", Title: "Other:"})
	for _, c := range []*cobra.Command{a.runCmd(), a.submitCmd(), a.renderCmd(), a.psCmd(), a.statusCmd(), a.logsCmd(), a.waitCmd(), a.cancelCmd(), a.rmCmd()} {
		c.GroupID = "jobs"
		root.AddCommand(c)
	}
	v := a.versionCmd()
	v.GroupID = "other"
	root.AddCommand(v)
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}
