package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const execExit = exitHelp + `the command's own; 124 it was ended by --timeout, 125 berth or the
environment failed, 126 it could not be started or its directory is missing, 127
it was not found, 130 it was interrupted, 128+N signal N ended it.`

func (a *app) execCmd() *cobra.Command {
	f := envFlags{own: true}
	var j joinFlags
	var limit, file string
	var vars []string
	var stdin bool
	var batch, merge bool
	var show int
	c := &cobra.Command{
		Use: "exec [flags] -- COMMAND...",
		Long: `Run a command in a named, contained environment and show its output. One word after
"--" is run by the session's shell; several words are a program and its arguments,
without a shell.

Commands of a session run one after the other and share a directory, variables,
functions, aliases and options, as in one shell: cd and export stay. A command that
ends its shell (exit, set -e) does not end the session.

With --batch the commands are lines of JSON on stdin, each answered by a line: one
process for a program that runs many (berth help callers).

` + envHelp + `

` + joinHelp + `
` + execExit,
		Example: `  berth exec --image docker://debian:12 -- 'cd /srv && ls'
  berth exec -- pytest -q tests            # in the same place, still in /srv
  berth exec --session agent-7 --timeout 20m -- ./train.sh
  berth exec --backend local -- make       # on this machine, without containment
  berth exec --backend ssh --host gpu1 -- nvidia-smi
  berth exec --command-file setup.sh       # longer than an argument can be
  tar c . | berth exec --stdin -- 'tar x'
  berth exec --json -- 'git status'
  echo '{"id": 1, "command": "ls"}' | berth exec --batch
  berth exec --job 28fc56a4 -- 'ps -ef; tail -3 train.log'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var words jobs.Command
			var err error
			switch {
			case batch:
				err = a.batchFlags(cmd, args)
			case cmd.Flags().Changed("command-file"):
				words, err = a.commandFrom(file, args, stdin)
			default:
				words, err = command(cmd, args)
			}
			if err != nil {
				return err
			}
			req := engine.ExecRequest{Command: words, Dir: f.dir}
			if req.Timeout, err = orNever("--timeout", limit); err != nil {
				return err
			}
			if req.Env, err = variables(vars); err != nil {
				return err
			}
			req.Merge = merge
			if stdin {
				req.Stdin = a.stdin
			}
			if req.ShowBytes, err = a.window(cmd, show); err != nil {
				return err
			}
			f.dir = "" // it is this command's and not the environment's
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("timeout") {
				req.Timeout = cfg.Timeout()
			}
			req.Fork = cfg.FreshShells()
			session, in, leave, err := a.inPlace(cmd, &f, &j)
			if err != nil {
				return err
			}
			defer leave()
			if batch {
				return a.batch(cmd.Context(), session, req, in)
			}
			s, where, err := in(session)
			if err != nil {
				return err
			}
			return a.execute(cmd, s, req, where)
		},
	}
	f.add(c)
	j.add(c)
	c.Flags().StringVar(&j.job, "job", "", "run beside the task of the running job `ID` instead of in an environment")
	c.Flags().StringVar(&f.dir, "workdir", "", "change to the directory `DIR` of the environment first (~ is the home there); the session stays there")
	c.Flags().StringVar(&limit, "timeout", "", "end the command after `TIME`, such as 10m (default 180s; 0: never)")
	c.Flags().StringArrayVar(&vars, "var", nil, "set a variable for this command only: `NAME` (with its value here) or NAME=VALUE; repeatable")
	c.Flags().BoolVar(&stdin, "stdin", false, "pass standard input on to the command")
	c.Flags().IntVar(&show, "show-bytes", 0, "with --json: show at most `N` bytes of each stream (default 50,000 characters)")
	c.Flags().StringVar(&file, "command-file", "", "read the command for the shell, of any length, from `FILE` (- is stdin)")
	c.Flags().BoolVar(&merge, "merge", false, "show its stdout and stderr as one, in the order in which they were written")
	c.Flags().BoolVar(&batch, "batch", false, "run the commands of JSON lines on stdin, and answer each by one")
	a.jsonFlag(c)
	failsWith(c, codeExec)
	return c
}

// commandFrom reads a command that may be longer than an argument.
func (a *app) commandFrom(file string, args []string, stdin bool) (c jobs.Command, err error) {
	switch {
	case len(args) > 0:
		return c, usage("--command-file names the command: there is none after --")
	case file == "-" && stdin:
		return c, usage("--command-file - reads the command from stdin, and --stdin passes stdin on to it: it cannot be both")
	}
	from := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			kind := jobs.KindUsage
			if errors.Is(err, fs.ErrNotExist) {
				kind = jobs.KindNotFound
			}
			return c, &jobs.Error{Kind: kind, Msg: "--command-file", Err: err}
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	b, err := io.ReadAll(io.LimitReader(from, jobs.MaxCommand+1))
	if err != nil {
		return c, fmt.Errorf("--command-file: %w", err)
	}
	if c.Shell = string(b); strings.TrimSpace(c.Shell) == "" {
		return c, usage("--command-file %s: there is no command in it", file)
	}
	return c, c.CheckLength()
}

// window checks how much of the output is to be shown.
func (a *app) window(cmd *cobra.Command, n int) (int, error) {
	switch {
	case !cmd.Flags().Changed("show-bytes"):
		return 0, nil
	case !a.json:
		return 0, usage("--show-bytes goes with --json: else all of the output is shown")
	}
	return n, checkWindow("--show-bytes", n)
}

func checkWindow(name string, n int) error {
	if n < 1 || n > engine.MostShown {
		return usage("%s must be from 1 to %d, found %d", name, engine.MostShown, n)
	}
	return nil
}

// executor runs commands in one session.
type executor interface {
	Exec(context.Context, engine.ExecRequest) (*engine.ExecResult, error)
}

// sessions returns who runs the commands of a session, and what --json says of
// where that is.
type sessions func(name string) (s executor, where map[string]any, err error)

// inPlace comes into the environment, or beside the job, that the flags mean: with
// the session that they name, which is "" where none is meant.
func (a *app) inPlace(cmd *cobra.Command, f *envFlags, j *joinFlags) (session string, in sessions, leave func(), err error) {
	if cmd.Flags().Changed("job") {
		joined, err := a.join(cmd, j)
		if err != nil {
			return "", nil, nil, err
		}
		return "", func(name string) (executor, map[string]any, error) {
			if name != "" {
				return nil, nil, usage("beside a job each call has a session of its own")
			}
			return joined, map[string]any{"job": joined.Spec.ID, "notes": joined.Notes()}, nil
		}, joined.Close, nil
	}
	if cmd.Flags().Changed("wait") {
		return "", nil, nil, usage("--wait goes with --job")
	}
	v, err := a.environment(cmd.Context(), cmd, f)
	if err != nil {
		return "", nil, nil, err
	}
	return f.session, func(name string) (executor, map[string]any, error) {
		if once := v.OneShot(); once != nil {
			if name != "" {
				return nil, nil, &jobs.Error{Kind: jobs.KindConfig,
					Msg:  "the backend " + v.Spec.Backend + " runs single commands, and has no sessions",
					Hint: "leave --session out"}
			}
			return once, map[string]any{"environment": v.Spec.Name}, nil
		}
		if name == "" {
			name = jobs.DefaultSession
		}
		s, err := v.Session(name)
		return s, map[string]any{"environment": v.Spec.Name, "session": name}, err
	}, func() { a.leave(cmd.Context(), v) }, nil
}

// execute runs a command and tells how it ended; in --json beside where.
func (a *app) execute(cmd *cobra.Command, s executor, req engine.ExecRequest, where map[string]any) error {
	if !a.json {
		req.Stdout, req.Stderr = a.stdout, a.stderr
	}
	if a.errTTY {
		req.Waiting = func() { a.say("waiting: another command runs in this session; --session gives one of its own") }
	}
	res, err := s.Exec(cmd.Context(), req)
	if res != nil && !a.json {
		a.notes(res.Notes)
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(a.execJSON(where, req, res))
	} else {
		a.explain(res, req)
	}
	if err == nil && res.Code != 0 {
		err = exitCode(res.Code)
	}
	return err
}

func (a *app) notes(list []string) {
	for _, n := range list {
		a.say("note: %s", n)
	}
}

// explain says what the exit code alone does not.
func (a *app) explain(res *engine.ExecResult, req engine.ExecRequest) {
	switch {
	case res.TimedOut:
		limit := req.Timeout
		if limit == 0 {
			limit = jobs.DefaultTimeout
		}
		if res.Exit.Error != "" { // as far as is known it never ran; the notes tell of that
			a.say("it was ended after %v; --timeout sets another limit", limit)
			return
		}
		a.say("the command was ended after %v; --timeout sets another limit", limit)
	case res.Interrupted:
		a.say("interrupted; the command was ended")
	case res.Exit.Error != "":
		a.say("error: %s", res.Exit.Error)
	}
}

// outputJSON is one stream in --json.
type outputJSON struct {
	Text      string `json:"text"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated"`
	Omitted   int64  `json:"omitted_chars,omitempty"`
	File      string `json:"file,omitempty"`
}

// execJSON is what --json says of a command that has ended.
func (a *app) execJSON(where map[string]any, req engine.ExecRequest, res *engine.ExecResult) map[string]any {
	out := func(c engine.Captured) outputJSON {
		if c.FileError != nil {
			a.say("warning: the whole output could not be kept: %v", c.FileError)
		}
		return outputJSON{c.Text, c.Bytes, c.Truncated, c.Omitted, c.File}
	}
	notes, _ := where["notes"].([]string)
	all := map[string]any{
		"exit_code": res.Code, "exit": res.Exit,
		"cwd": res.Dir, "duration_ms": float64(res.Duration.Microseconds()) / 1000, "timed_out": res.TimedOut, "interrupted": res.Interrupted,
		"shell_ended": res.ShellEnded,
	}
	if req.Merge {
		all["output"] = out(res.Stdout)
	} else {
		all["stdout"], all["stderr"] = out(res.Stdout), out(res.Stderr)
	}
	maps.Copy(all, where)
	all["notes"] = append(append([]string{}, notes...), res.Notes...)
	return all
}

// codeExec is the exit code of berth's own failures where other codes are the
// command's, as with docker and timeout(1).
const codeExec = 125

// failsWith sets the exit code of a verb's own failures.
func failsWith(c *cobra.Command, code int) { annotate(c, annotationFail, strconv.Itoa(code)) }
