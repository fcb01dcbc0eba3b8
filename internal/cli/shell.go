package cli

import (
	"os"
	"os/signal"
	"syscall"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) shellCmd() *cobra.Command {
	var f envFlags
	var vars []string
	c := &cobra.Command{
		Use: "shell [flags] [-- COMMAND...]", Short: "open a terminal in an environment",
		Long: `Open an interactive shell on a terminal in an environment, or run a command that
wants one. It begins with the directory, variables and functions of the session
and keeps its own changes to itself.
` + envHelp + `
  berth shell
  berth shell --env train -- htop
` + execExit,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, ok := a.stdin.(*os.File)
			if !ok || !term.IsTerminal(int(in.Fd())) || !a.tty {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth shell needs a terminal", Hint: "berth exec --stdin -- COMMAND runs one without"}
			}
			req := engine.ShellRequest{Dir: f.dir, Stdin: in, Stdout: a.stdout}
			f.dir = ""
			var err error
			if len(args) > 0 {
				if req.Command, err = command(cmd, args); err != nil {
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
			return a.shell(cmd, &f, req, in)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.dir, "workdir", "", "change to this `DIR` inside first")
	c.Flags().StringArrayVar(&vars, "var", nil, "`NAME` (taken from here) or NAME=VALUE, for this shell only")
	failsWith(c, codeExec)
	return c
}

func (a *app) shell(cmd *cobra.Command, f *envFlags, req engine.ShellRequest, in *os.File) error {
	v, s, err := a.enterOpen(cmd, f)
	if err != nil {
		return err
	}
	defer v.Close()
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
	res, err := s.Shell(cmd.Context(), req)
	_ = term.Restore(int(in.Fd()), old)
	if err != nil {
		return err
	}
	if res.Exit.Error != "" {
		a.say("error: %s", res.Exit.Error)
	}
	if res.Code != 0 {
		return exitCode(res.Code)
	}
	return nil
}
