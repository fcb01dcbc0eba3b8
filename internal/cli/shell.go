package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) shellCmd() *cobra.Command {
	f := envFlags{own: true}
	var j joinFlags
	var vars []string
	c := &cobra.Command{
		Use: "shell [flags] [JOB] [-- COMMAND...]",
		Long: `Open an interactive shell in an environment, or run a command that needs a terminal.
It begins with the directory, variables and functions of the session and keeps its
own changes to itself. With a job's id, it opens where that job's task runs.

` + envHelp + `

` + joinHelp + `
` + execExit,
		Example: `  berth shell
  berth shell --env train -- htop
  berth shell 28fc56a4                  # beside the task of a running job`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, ok := a.stdin.(*os.File)
			if !ok || !term.IsTerminal(int(in.Fd())) || !a.tty {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth shell needs a terminal",
					Hint: "berth exec --stdin -- COMMAND runs one without"}
			}
			req := engine.ShellRequest{Dir: f.dir, Stdin: in, Stdout: a.stdout}
			f.dir = ""
			var err error
			words := args
			if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				if dash < 0 {
					dash = len(args)
				}
				if dash > 1 {
					return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("unexpected argument %q", args[1]),
						Hint: "one job at most, and a command after --: berth shell JOB -- COMMAND"}
				}
				j.job, words = args[0], args[1:]
			}
			if len(words) > 0 {
				if req.Command, err = commandOf(cmd, words); err != nil {
					return err
				}
			}
			if req.Env, err = variables(vars); err != nil {
				return err
			}
			for _, n := range []string{"TERM", "COLORTERM"} {
				if v := os.Getenv(n); v != "" {
					req.Env = append(req.Env, n+"="+v)
				}
			}
			if j.job != "" {
				return a.shellBeside(cmd, &j, req, in)
			}
			if cmd.Flags().Changed("wait") {
				return usage("--wait goes with a job")
			}
			return a.shell(cmd, &f, req, in)
		},
	}
	f.add(c)
	j.add(c)
	c.Flags().StringVar(&f.dir, "workdir", "", "start in the directory `DIR` of the environment")
	c.Flags().StringArrayVar(&vars, "var", nil, "set a variable for this shell only: `NAME` (with its value here) or NAME=VALUE; repeatable")
	failsWith(c, codeExec)
	return c
}

func (a *app) shell(cmd *cobra.Command, f *envFlags, req engine.ShellRequest, in *os.File) error {
	v, s, err := a.enterOpen(cmd, f)
	if err != nil {
		return err
	}
	defer a.leave(cmd.Context(), v)
	return a.onTerminal(cmd, s, req, in)
}

// shellBeside opens the terminal beside a job's task.
func (a *app) shellBeside(cmd *cobra.Command, f *joinFlags, req engine.ShellRequest, in *os.File) error {
	j, err := a.join(cmd, f)
	if err != nil {
		return err
	}
	defer j.Close()
	a.notes(j.Notes())
	return a.onTerminal(cmd, j, req, in)
}

// onTerminal runs a command, or a shell, on this process's terminal.
func (a *app) onTerminal(cmd *cobra.Command, s interface {
	Shell(context.Context, engine.ShellRequest) (*engine.ExecResult, error)
}, req engine.ShellRequest, in *os.File) error {
	size := func() engine.Size {
		cols, rows, err := term.GetSize(int(in.Fd()))
		if err != nil {
			return engine.Size{Rows: 24, Cols: 80}
		}
		return engine.Size{Rows: rows, Cols: cols}
	}
	req.Size = size()
	resized := make(chan engine.Size, 1)
	req.Resized = resized
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	go func() {
		for range changes {
			resized <- size()
		}
	}()
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	a.raw.Store(true)
	res, err := s.Shell(cmd.Context(), req)
	a.raw.Store(false)
	_ = term.Restore(int(in.Fd()), old)
	if err != nil {
		return err
	}
	a.notes(res.Notes)
	if res.Exit.Error != "" {
		a.say("error: %s", res.Exit.Error)
	}
	if res.Code != 0 {
		return exitCode(res.Code)
	}
	return nil
}
