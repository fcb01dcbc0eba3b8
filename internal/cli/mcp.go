package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/sitefile"
	"berth/internal/mcp"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

// mcpOptions say what berth mcp serves, and how.
type mcpOptions struct {
	env       envFlags
	enable    []string
	listen    string
	tokenFile string
}

// Words of --enable.
const (
	enableRun    = "run"
	enableSubmit = "submit"
)

func (a *app) mcpCmd() *cobra.Command {
	o := mcpOptions{env: envFlags{own: true}}
	c := &cobra.Command{
		Use: "mcp [flags] | mcp COMMAND",
		Long: `Serve berth to an agent: by default on stdin and stdout, for a client that starts this
command (berth help --page mcp has what goes into the files of Claude Code, Codex, Gemini
CLI and OpenCode). It reads jobs, their logs, diffs and reviews, and changes nothing.

With an environment (--env, or --enable run) there are tools for its files and processes,
with the names that agents know. --enable run also has those that run commands, write
files and end processes in it; the flags say what the environment is like, as for berth
exec. --enable submit has those that submit and cancel jobs: a person confirms each job
(berth mcp confirm), unless the client can ask, or the configuration says otherwise
(mcp.confirm). No tool approves or merges.
` + exitHelp + `0 the client has left, 2 usage, 5 it cannot listen, 78 the state directory, socket or
token is open to others, 130 interrupted.`,
		Example: `  claude mcp add berth -- berth mcp
  berth mcp --env train                          # its files can be read, too
  berth mcp --enable run --image docker://debian:12 --network none
  berth mcp --enable run --enable submit
  berth mcp --listen 127.0.0.1:8765              # streamable HTTP, with a token
  berth mcp --listen unix:$XDG_RUNTIME_DIR/berth/mcp.sock`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd, &o) },
	}
	o.env.add(c)
	f := c.Flags()
	f.StringArrayVar(&o.enable, "enable", nil, "also serve tools that change something: `run` (in the environment) or submit (jobs); repeatable")
	f.StringVar(&o.listen, "listen", "", "serve streamable HTTP at `ADDRESS`: 127.0.0.1:PORT, or unix:PATH, absolute, in a private directory")
	f.StringVar(&o.tokenFile, "token-file", "", "the `FILE` with the token of --listen, mode 0600; made where there is none "+
		"(default mcp/token in the state directory)")
	c.AddCommand(a.mcpLsCmd(), a.mcpConfirmCmd(), a.mcpRefuseCmd())
	return c
}

func (a *app) mcp(cmd *cobra.Command, o *mcpOptions) error {
	for _, word := range o.enable {
		if word != enableRun && word != enableSubmit {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "--enable must be run or submit, found " + jobs.Printable(word),
				Hint: "--enable run --enable submit"}
		}
	}
	if o.tokenFile != "" && o.listen == "" {
		return usage("--token-file goes with --listen")
	}
	if o.listen == "" && isTerminal(a.stdin) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "a client of the protocol starts berth mcp, and speaks on its stdin: this is a terminal",
			Hint: "claude mcp add berth -- berth mcp; berth help --page mcp has others; or --listen 127.0.0.1:PORT"}
	}
	s, err := a.mcpServer(cmd, o)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.listen != "" {
		err = a.mcpListen(cmd.Context(), s, o)
	} else {
		err = s.Stream(cmd.Context(), io.NopCloser(a.stdin), unclosed{a.stdout})
	}
	if interrupted(cmd.Context(), err) {
		return exitCode(jobs.CodeInterrupted)
	}
	return err
}

// unclosed is a stream that stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

func (a *app) mcpListen(ctx context.Context, s *mcp.Server, o *mcpOptions) error {
	n, err := mcp.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	if n.Addr().Network() == "unix" && o.tokenFile == "" {
		a.say("serving %s", o.listen)
		return s.Serve(ctx, n, "")
	}
	if o.tokenFile == "" {
		o.tokenFile = filepath.Join(s.Engine.Store.Home(), "mcp", "token")
	}
	token, err := mcp.Token(o.tokenFile)
	if err != nil {
		return err
	}
	a.say("serving http://%s/, for who has the token in %s", n.Addr(), o.tokenFile)
	return s.Serve(ctx, n, token)
}

func (a *app) mcpServer(cmd *cobra.Command, o *mcpOptions) (*mcp.Server, error) {
	cfg, err := a.config(cmd)
	if err != nil {
		return nil, err
	}
	site, err := sitefile.Read()
	if err != nil {
		return nil, err
	}
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	m := mcp.Options{
		Version: buildVersion().version, Engine: e, Session: o.env.session, Timeout: cfg.Timeout(), Fork: cfg.FreshShells(),
		Run: slices.Contains(o.enable, enableRun), Submit: slices.Contains(o.enable, enableSubmit), Unconfirmed: !site.Confirms(cfg.ConfirmSubmits()),
		Submitter: a.submitter(cmd, e), Dir: dir, Job: mcpJob, Guide: string(exampleTask), Now: a.now,
		Review: func(rv *engine.Review, files []engine.ReviewFile) any {
			j := reviewOf(rv)
			j.Files = files
			return j
		},
	}
	switch {
	case m.Run:
		m.Environment = func(ctx context.Context) (*engine.Environment, error) { return a.environment(ctx, cmd, &o.env) }
	case o.env.name != "":
		m.Environment = func(context.Context) (*engine.Environment, error) { return a.existing(o.env.name) }
	}
	return mcp.New(m), nil
}

// submitter makes jobs of what clients ask for, as this command's configuration has them.
func (a *app) submitter(cmd *cobra.Command, e *engine.Engine) *mcp.Submitter {
	return &mcp.Submitter{Engine: e, Settle: func(t *jobs.Task) (engine.Choice, []string, error) {
		cfg, err := a.config(cmd)
		if err != nil {
			return engine.Choice{}, nil, err
		}
		f := taskFlags{keys: []string{}} // the flags are an environment's
		settled, c, notes, err := f.settle(cmd, *t, cfg)
		*t = settled
		return c, notes, err
	}}
}

// mcpJob is what a model is told of a job.
func mcpJob(v engine.View) mcp.Job {
	if at := v.Current(); at != nil && v.Progress == nil {
		v.Progress = store.LoadProgress(at.Dir)
	}
	j := viewJSON(v)
	out := mcp.Job{ID: j.Short, Name: jobs.Printable(j.Name), State: string(j.State), Final: j.Final, ExitCode: j.ExitCode, Reason: j.Reason, Hint: j.Hint,
		Scheduler: j.Scheduler, NativeID: j.NativeID, Containment: j.containment(), Attempt: j.Attempt, Branch: j.Branch, Labels: j.Labels,
		Submitted: j.Created, Started: j.Started, Ended: j.Ended, Record: j}
	switch {
	case j.Final:
	case j.WaitsFor != "":
		out.Waiting = "waits for " + j.WaitsFor
	case j.Plain != "":
		out.Waiting = "it " + j.Plain
	default:
		out.Waiting = j.Waiting
	}
	if r := j.Result; r != nil && r.Changed() {
		out.Changes = changesText(r)
	}
	if p := j.Progress; p != nil {
		out.Progress = p.Text
	}
	return out
}

func oneRequest(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs the id of one request", Hint: "berth mcp ls"}
	}
	return nil
}

// requests are those of the state directory.
func (a *app) requests() (*mcp.Requests, error) {
	home, err := config.Home()
	if err != nil {
		return nil, err
	}
	return mcp.RequestsIn(home, a.now), nil
}

func (a *app) mcpLsCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ls", Short: "list the jobs that models want to submit, and wait for a person",
		Long: `List the submissions that wait for a person, oldest first, and those that were confirmed
and are no job, because that failed: confirm them once more. With --all those that were
answered in the last 30 days, too.
Columns: id, state, asked, task file, client.
` + exitHelp + `0 ok, 5 a record could not be read.`,
		Example: "  berth mcp ls\n  berth mcp ls --all --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := a.requests()
			if err != nil {
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			s := a.submitter(cmd, e)
			list, err := q.List()
			out, rows := []map[string]any{}, [][]string{}
			for _, r := range list {
				state := q.State(r)
				open := state == mcp.StateWaiting
				if r.Answer != nil && r.Answer.Confirmed {
					rec, merr := s.Made(r)
					open, err = rec == nil, errors.Join(err, merr)
				}
				if !all && !open {
					continue
				}
				out = append(out, map[string]any{"request": r, "state": state, "answer": r.Answer})
				file := "-" // its text came without one
				if r.Given {
					file = r.File
				}
				rows = append(rows, []string{r.ID, state, a.when(r.Created), file, dash(r.Client)})
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"requests": out}), err)
			}
			if len(rows) == 0 && a.tty {
				a.say("no submission waits")
			}
			return errors.Join(a.table([]string{"ID", "STATE", "ASKED", "FILE", "CLIENT"}, rows), err)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that were answered or are too old")
	a.jsonFlag(c)
	return c
}

func (a *app) mcpConfirmCmd() *cobra.Command {
	var where taskFlags
	c := &cobra.Command{
		Use: "confirm ID", Short: "show what a model wants to submit, and submit it",
		Long: `Show the job that a model wants to submit: where and how contained it runs, what it is
given, its caps and what it may cost, its commands, prompt and script. What the task says
is marked with "|", and ">" where a line goes on. Then type the last four characters of
the id: what was shown is submitted, and nothing else. It takes a terminal; a request can
be confirmed for a day.
` + exitHelp + `0 submitted, 2 not confirmed, or it cannot be submitted, 3 no such request, 4 refused
below a process of a job, or without a terminal, 5 the scheduler could not be reached, 75 the
job has changed, 78 its containment is not available here.`,
		Example: "  berth mcp confirm req-0a1b2c3d4e5f",
		Args:    oneRequest,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.confirm(cmd, args[0]) },
	}
	where.addWhere(c)
	return c
}

// confirm asks a person for one request, and submits it.
func (a *app) confirm(cmd *cobra.Command, id string) error {
	q, err := a.requests()
	if err != nil {
		return err
	}
	r, err := q.Load(id)
	if err != nil {
		return err
	}
	// Its project's configuration counts, and not that of the person's directory.
	if err := os.Chdir(filepath.Dir(r.File)); err != nil {
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the directory of the request " + r.ID, Err: err, Hint: "berth mcp refuse " + r.ID}
	}
	if _, err := a.config(cmd); err != nil {
		return err
	}
	e, err := a.engine()
	if err != nil {
		return err
	}
	if err := e.OutsideJobs("confirms no submission"); err != nil {
		return err
	}
	if !isTerminal(a.stdin) || !a.errTTY {
		return &jobs.Error{Kind: jobs.KindAuth, Msg: "a person confirms a submission, on a terminal, and this is none",
			Hint: "run berth mcp confirm " + r.ID + " in a shell of your own"}
	}
	// One that was confirmed and is no job was killed on its way.
	if r.Answer == nil || !r.Answer.Confirmed {
		if err := q.Open(r); err != nil {
			return err
		}
	}
	s := a.submitter(cmd, e)
	if rec, err := s.Made(r); err != nil || rec != nil {
		if rec != nil {
			a.say("it was submitted before")
			err = a.printID(rec)
		}
		return err
	}
	p, err := s.Propose(cmd.Context(), r)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(a.stderr, p.Text); err != nil {
		return err
	}
	a.say("request %s, made %s by %s", r.ID, a.when(r.Created), jobs.Escaped(dash(r.Client)))
	if err := a.typed(r.ID[len(r.ID)-4:]); err != nil {
		return err
	}
	if r.Answer == nil {
		if err := q.AnswerTo(r, mcp.Answer{Confirmed: true, Way: "terminal", By: engine.Identity().User, Shown: p.Digest()}); err != nil {
			return err
		}
	}
	rec, err := s.Submit(cmd.Context(), r, p)
	if rec != nil {
		if perr := a.printID(rec); perr != nil {
			return perr
		}
	}
	return err
}

// typed asks a person to type a word, and refuses whatever else they type.
func (a *app) typed(word string) error {
	a.say("to submit it, type %s:", word)
	line, err := bufio.NewReader(io.LimitReader(a.stdin, 1000)).ReadString('\n')
	if err != nil && line == "" {
		return usage("nothing was typed: not submitted")
	}
	if strings.TrimSpace(line) != word {
		return usage("that is not %s: not submitted", word)
	}
	return nil
}

func (a *app) mcpRefuseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "refuse ID", Short: "refuse what a model wants to submit",
		Long: `Refuse a submission: it is not made, and the model that waits for it is told.
` + exitHelp + `0 refused, 2 it has its answer already, 3 no such request.`,
		Example: "  berth mcp refuse req-0a1b2c3d4e5f",
		Args:    oneRequest,
		RunE: func(_ *cobra.Command, args []string) error {
			q, err := a.requests()
			if err != nil {
				return err
			}
			r, err := q.Load(args[0])
			if err == nil {
				err = q.Open(r)
			}
			if err != nil {
				return err
			}
			return q.AnswerTo(r, mcp.Answer{Way: "terminal", By: engine.Identity().User})
		},
	}
}
