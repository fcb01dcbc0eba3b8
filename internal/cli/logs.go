package cli

import (
	"context"
	"io"
	"os"
	"os/signal"

	"berth/engine"
	"berth/internal/sys/termsafe"
	"berth/jobs"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) logsCmd() *cobra.Command {
	var follow, done, runtime, onlyOut, onlyErr, raw, events, transcript bool
	var grep string
	c := &cobra.Command{
		Use: "logs ID",
		Long: `Show what a job's command has written: its stdout on stdout, its stderr on stderr.
--done shows the output of the done commands; --runtime shows the messages of the
runner, of the container program and of the scheduler.

Of a job whose agent berth knows (use in [agent]), what the agent writes is shown as a
person reads it: what it says, tools with their argument, results in short, what it has
used so far. --events shows it as it came, --transcript as one JSON object for each event:
of a job that has ended those that were recorded, each with its time. --grep TEXT shows
those that have TEXT in what was said, called or answered, in upper or lower case.

` + rawHelp + `
` + exitHelp + `0 ok, 2 an ambiguous id, 3 no such job or nothing written yet, 130
interrupted.`,
		Example: `  berth logs 0a1b2c3d
  berth logs -f 0a1b2c3d            # until it ends; ctrl-C leaves it running
  berth logs --runtime 0a1b2c3d     # when the container did not start
  berth logs --transcript 0a1b2c3d | jq -r 'select(.kind == "tool") | .arg'
  berth logs --transcript --grep 'go test' 0a1b2c3d`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth logs needs one job id", Hint: "berth ps --all lists the jobs"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case done && runtime:
				return usage("--done and --runtime show different logs: give one of them")
			case onlyOut && onlyErr:
				return usage("--stdout and --stderr: give one of them, or none for both")
			case transcript && (events || done || runtime || onlyErr):
				return usage("--transcript shows the events of the command's stdout alone")
			case !transcript && (a.json || cmd.Flags().Changed("grep")):
				return usage("--json and --grep are of an agent's events: give --transcript, too")
			case len(grep) > maxGrep:
				return usage("--grep: a text has at most %d bytes", maxGrep)
			}
			a.lines = a.json
			e, err := a.engine()
			if err != nil {
				return err
			}
			recs, err := find(e, args)
			if err != nil {
				return err
			}
			o := engine.LogOptions{Follow: follow}
			o.Stdout, o.Stderr = a.shown(raw)
			switch {
			case done:
				o.Kind = engine.LogDone
			case runtime:
				o.Kind = engine.LogRuntime
			}
			how := eventsShown
			switch {
			case transcript && recs[0].Spec.Agent == nil:
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "the job names no agent whose events berth reads",
					Hint: "berth logs " + args[0] + " shows its output"}
			case transcript:
				how, onlyOut = eventsJSON, true
				if read, err := a.transcript(recs[0], grep); read {
					return err
				}
			case events:
				how = eventsRaw
			}
			if onlyOut {
				o.Stderr = nil
			} else if onlyErr {
				o.Stdout = nil
			}
			if o.Kind == engine.LogCommand {
				o.Stdout = a.agentView(&recs[0].Spec, o.Stdout, how, grep)
			}
			o.See = func(v engine.View) { a.warn([]engine.View{v}) }
			if follow {
				o.See = a.reached()
			}
			_, err = showLog(cmd.Context(), e, recs[0], o)
			if follow && err != nil && interrupted(cmd.Context(), err) {
				return exitCode(jobs.CodeInterrupted)
			}
			return err
		},
	}
	fl := c.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "show new output until the job has ended")
	fl.BoolVar(&done, "done", false, "show the output of the done commands")
	fl.BoolVar(&runtime, "runtime", false, "show the messages of the runner, the container program and the scheduler")
	fl.BoolVar(&onlyOut, "stdout", false, "show only stdout")
	fl.BoolVar(&onlyErr, "stderr", false, "show only stderr")
	fl.BoolVar(&events, "events", false, "show an agent's events as they came")
	fl.BoolVar(&transcript, "transcript", false, "show an agent's events as JSON, one object for each")
	fl.StringVar(&grep, "grep", "", "with --transcript: show only events that have `TEXT` in them")
	rawFlag(fl, &raw)
	a.jsonFlag(c)
	return c
}

// maxGrep bounds what is looked for, in bytes.
const maxGrep = 1 << 10

// rawHelp says what becomes of a task's words on a terminal.
const rawHelp = `On a terminal, colours are shown and other control sequences (titles, the clipboard,
cursor moves, clearing) are removed; --raw passes them on. A pipe gets everything.`

func rawFlag(fl *pflag.FlagSet, raw *bool) {
	fl.BoolVar(raw, "raw", false, "pass on all control sequences to the terminal")
}

// shown is where a task's words go: each of the two as itself, but a terminal,
// which they would drive.
func (a *app) shown(raw bool) (stdout, stderr io.Writer) {
	stdout, stderr = a.stdout, a.stderr
	if a.tty && !raw {
		stdout = termsafe.New(overPassing{stdout, a})
	}
	if a.errTTY && !raw {
		stderr = termsafe.New(overPassing{stderr, a})
	}
	return stdout, stderr
}

// showLog is [engine.Engine.Log]. A task's colours are taken off the terminal before the
// output of another attempt and at the end: they hide what berth says, or say something else.
func showLog(ctx context.Context, e *engine.Engine, rec *jobs.Record, o engine.LogOptions) (engine.View, error) {
	reset := func() {
		unpaint(o.Stdout)
		unpaint(o.Stderr)
	}
	defer reset()
	n, see := rec.Current().N, o.See
	o.See = func(v engine.View) {
		if at := v.Current().N; at > n {
			n = at
			reset()
		}
		see(v)
	}
	return e.Log(ctx, rec, o)
}

func unpaint(w io.Writer) {
	if p, ok := w.(interface{ Reset() error }); ok {
		_ = p.Reset()
	}
}

// secondInterrupt hears the next ctrl-C after the first has ended the context.
func secondInterrupt() (<-chan os.Signal, context.CancelFunc) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt)
	return ch, func() { signal.Stop(ch) }
}
