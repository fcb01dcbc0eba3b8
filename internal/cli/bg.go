package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const bgExit = exitHelp + `0 ok, 2 usage, 3 no such environment or process, 5 the environment failed, 78 it
is not available here.`

func (a *app) bgCmd() *cobra.Command {
	return group("bg",
		`Start processes in the background of an environment and find them again, from any
terminal of this account: their logs, exit codes and standard inputs. They keep their
environment warm, and end with it.`,
		`  id=$(berth bg start -- 'python3 -m http.server 8000')
  berth bg list
  berth bg log -f $id
  berth bg wait $id             # exits as the process did
  berth bg write --text quit $id
  berth bg kill $id`, a.bgStartCmd(), a.bgListCmd(), a.bgLogCmd(), a.bgWaitCmd(), a.bgWriteCmd(), a.bgKillCmd())
}

func (a *app) bgStartCmd() *cobra.Command {
	var f envFlags
	var limit string
	var vars []string
	c := &cobra.Command{
		Use: "start [flags] -- COMMAND...", Short: "start a process; prints its id",
		Long: `Start a process in the background and print its id, and nothing else, on stdout. It
begins with the session's directory, variables and functions; its changes to them are
its own. Its output goes to a log; its standard input stays open (berth bg write).

` + envHelp + `
` + bgExit,
		Example: `  berth bg start -- 'python3 -m http.server 8000'
  berth bg start --env train --workdir /srv -- ./train.sh --epochs 10`,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := command(cmd, args)
			if err != nil {
				return err
			}
			req := engine.ExecRequest{Command: words, Dir: f.dir}
			f.dir = ""
			if req.Timeout, err = orNever("--timeout", limit); err != nil {
				return err
			}
			if req.Env, err = variables(vars); err != nil {
				return err
			}
			v, s, err := a.enterOpen(cmd, &f)
			if err != nil {
				return err
			}
			defer v.Close()
			p, err := s.Start(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"environment": v.Spec.Name, "process": p})
			}
			_, err = fmt.Fprintln(a.stdout, p.ID)
			return err
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.dir, "workdir", "", "start in the directory `DIR` of the environment (~ is the home there)")
	c.Flags().StringVar(&limit, "timeout", "", "end the process after `TIME`, such as 10m (default never)")
	c.Flags().StringArrayVar(&vars, "var", nil, "set a variable for this process only: `NAME` (with its value here) or NAME=VALUE; repeatable")
	a.jsonFlag(c)
	return c
}

// process is a command about one background process.
func (a *app) process(use, short, long, example string, run func(cmd *cobra.Command, v *engine.Environment, id string) error) *cobra.Command {
	var f envFlags
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs the id of one process", Hint: "berth bg list"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.meant(cmd, jobs.EnvOptions{Name: f.name})
			if err != nil {
				return err
			}
			defer v.Close()
			return run(cmd, v, args[0])
		},
	}
	f.pick(c)
	return c
}

func (a *app) bgListCmd() *cobra.Command {
	var f envFlags
	c := &cobra.Command{
		Use: "list", Short: "list background processes",
		Aliases: []string{"ls"},
		Long: `List the background processes of an environment, including those that have ended.
Columns: id, state, command, started, bytes of its log.
` + bgExit,
		Example: `  berth bg list
  berth bg list --env train`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := a.meant(cmd, jobs.EnvOptions{Name: f.name})
			if err != nil {
				return err
			}
			defer v.Close()
			list, err := v.Backgrounds(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"environment": v.Spec.Name, "processes": append([]engine.Background{}, list...)})
			}
			if len(list) == 0 && a.tty {
				a.say("no background processes in %s", v.Spec.Name)
				return nil
			}
			rows := make([][]string, len(list))
			for i, p := range list {
				rows[i] = []string{p.ID, bgState(p), commandText(p.Command), a.when(p.Started), strconv.FormatInt(p.Log, 10)}
			}
			return a.table([]string{"ID", "STATE", "COMMAND", "STARTED", "LOG"}, rows)
		},
	}
	f.pick(c)
	a.jsonFlag(c)
	return c
}

func bgState(p engine.Background) string {
	switch {
	case p.Running:
		return "running"
	case p.Exit != nil:
		return p.Exit.String()
	}
	return "lost"
}

func (a *app) bgLogCmd() *cobra.Command {
	var follow, raw bool
	var tail int64
	c := a.process("log ID", "show the output of a process",
		`Show what a process has written since it began, stdout and stderr together, also
when it has ended.

`+rawHelp+`
`+bgExit, `  berth bg log bg-1
  berth bg log -f bg-1          # until it ends; ctrl-C leaves it running
  berth bg log --tail 2000 bg-1`,
		func(cmd *cobra.Command, v *engine.Environment, id string) error {
			out, _ := a.shown(raw)
			p, err := v.Log(cmd.Context(), id, -tail, follow, out)
			unpaint(out)
			if err == nil && p.Cut {
				a.say("note: the log has reached its limit; what came later was not kept")
			}
			return err
		})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show new output until the process has ended")
	rawFlag(c.Flags(), &raw)
	c.Flags().Int64Var(&tail, "tail", 0, "only the last `BYTES` of the log (default all)")
	return c
}

func (a *app) bgWaitCmd() *cobra.Command {
	var limit string
	c := a.process("wait ID", "wait until a process has ended; exits with its code",
		`Wait until a process has ended, and exit with its code. Ctrl-C and --timeout end the
waiting and not the process.
`+exitHelp+`the process's own; 124 it was ended by the time limit of bg start, or it still runs
after --timeout here, 125 berth or the environment failed, or it is not known how the
process ended, 128+N signal N ended it, 130 interrupted.`,
		`  berth bg wait bg-1
  berth bg wait --timeout 30s bg-1        # 124: it still runs
  berth bg wait $(berth bg start -- make)`,
		func(cmd *cobra.Command, v *engine.Environment, id string) error {
			d, err := orNever("--timeout", limit)
			if err != nil {
				return err
			}
			p, running, err := waitLimited(cmd.Context(), v, id, d)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.printJSON(map[string]any{"environment": v.Spec.Name, "process": p, "timed_out": running}); err != nil {
					return err
				}
			}
			switch {
			case running:
				a.say("%s still runs after %v, and goes on", id, d)
				return exitCode(jobs.CodeTimeout)
			case p.Exit == nil:
				return &jobs.Error{Kind: jobs.KindInfra, Msg: "how " + id + " ended is not known: " + p.Lost, Hint: "berth bg log " + id}
			case p.Exit.Code != 0:
				return exitCode(p.Exit.Code)
			}
			return nil
		})
	c.Flags().StringVar(&limit, "timeout", "", "wait at most `TIME`, such as 10m (default: no limit)")
	a.jsonFlag(c)
	failsWith(c, codeExec)
	return c
}

// waitLimited waits for the end of a process, or says that it still runs after d;
// without a positive d there is no limit.
func waitLimited(ctx context.Context, v *engine.Environment, id string, d time.Duration) (p engine.Background, running bool, err error) {
	limited := ctx
	if d > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	p, err = v.Wait(limited, id)
	if err == nil || ctx.Err() != nil || !errors.Is(limited.Err(), context.DeadlineExceeded) {
		return p, false, err
	}
	list, err := v.Backgrounds(ctx)
	for _, p := range list {
		if p.ID == id {
			return p, p.Running, nil
		}
	}
	return p, false, errors.Join(err, fmt.Errorf("%s is not listed any more", id))
}

func (a *app) bgWriteCmd() *cobra.Command {
	var text string
	var end bool
	c := a.process("write ID", "write to the standard input of a process",
		`Pass this command's standard input, or --text and a newline, on to the standard
input of a process. It stays open for more until --close.
`+bgExit, `  berth bg write --text yes bg-1
  berth bg write --close bg-1 <data.csv`,
		func(cmd *cobra.Command, v *engine.Environment, id string) error {
			var r io.Reader = a.stdin
			if cmd.Flags().Changed("text") {
				r = strings.NewReader(text + "\n")
			} else if end && isTerminal(a.stdin) {
				r = strings.NewReader("")
			}
			_, err := v.Write(cmd.Context(), id, r, end)
			return err
		})
	c.Flags().StringVar(&text, "text", "", "write this `LINE` instead of the standard input")
	c.Flags().BoolVar(&end, "close", false, "close the input afterwards: the process reads end of file")
	return c
}

func (a *app) bgKillCmd() *cobra.Command {
	var name, grace string
	c := a.process("kill ID", "end a process and everything that it has started",
		`End a process and everything that it has started: SIGTERM, and SIGKILL after --grace.
With --signal only that signal is sent, to its process group.
`+bgExit, `  berth bg kill bg-1
  berth bg kill --signal INT bg-1`,
		func(cmd *cobra.Command, v *engine.Environment, id string) error {
			sig, wait := 0, 2*time.Second
			if name != "" {
				if sig = signalOf(name); sig == 0 {
					return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("--signal %q is no signal", name),
						Hint: "give a name or a number, such as INT or 9"}
				}
			}
			if grace != "" {
				var err error
				if wait, err = orNever("--grace", grace); err != nil {
					return err
				}
				wait = max(0, wait)
			}
			p, err := v.Kill(cmd.Context(), id, sig, wait)
			if err == nil && !p.Running && sig == 0 && p.Exit != nil {
				a.say("%s: %s", id, p.Exit)
			}
			return err
		})
	c.Flags().StringVar(&name, "signal", "", "send only this signal: a `NAME` or number, such as INT or 9")
	c.Flags().StringVar(&grace, "grace", "", "`TIME` between SIGTERM and SIGKILL (default 2s)")
	return c
}

// signalOf reads a signal's name or number; 0 is none.
func signalOf(s string) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 64 {
		return n
	}
	s = strings.ToUpper(s)
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return int(unix.SignalNum(s))
}
