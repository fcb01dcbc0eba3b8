package cli

import (
	"bytes"
	"encoding/json"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/define"
	"berth/internal/sweep/look"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) sweepTellCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "tell SWEEP", Short: "add rows of the standard input, for a program that chooses them",
		Long: `Add the rows of the standard input to a sweep, in a round of their own: a JSON object a line.
For each row a line comes back, in their order: {"task": 7, "id": ..., "new": true,
"params": {...}}. A row that the sweep has already is not run again: "new" is false, and the
number is that of the task that it has. berth sweep ask gives the results.
` + sweepExit,
		Example: `  echo '{"lr": "0.02", "seed": "1"}' | berth sweep tell lr`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			t, err := s.Command()
			if err != nil {
				return err
			}
			d, err := define.OfTemplate(s.Spec.Name, t, "-")
			if err != nil {
				return err
			}
			d.Rows(a.stdin)
			var out bytes.Buffer
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			told := func(t define.Task, number int, isNew bool) error {
				params := map[string]string{}
				for _, p := range t.Params {
					params[p.Name] = p.Text
				}
				return enc.Encode(struct {
					Task   int               `json:"task"`
					ID     string            `json:"id"`
					New    bool              `json:"new"`
					Params map[string]string `json:"params"`
				}{number, t.ID.String(), isNew, params})
			}
			if err := a.mergeRound(cmd.Context(), s, f, d, sweep.Round{Kind: sweep.RoundAdd, Why: "tell"}, told); err != nil {
				return err
			}
			_, err = a.stdout.Write(out.Bytes())
			return err
		},
	}
	return c
}

func (a *app) sweepAskCmd() *cobra.Command {
	var follow bool
	var most int
	c := &cobra.Command{
		Use: "ask [SWEEP]", Short: "print the results of tasks as JSON lines",
		Long: `Print a line of JSON for each task that has a result, as berth sweep collect --jsonl does, and
in the order in which they come: its number and id, parameters, state, exit code, seconds, and
values: what it has found. A task that is run again has another line then, with its round.

With --follow it waits for more, of later rounds too, until the sweep is cancelled, or ctrl-C;
with -n it ends when so many tasks were printed. A program that chooses rows by results adds
them with berth sweep tell; examples/optuna is one.
` + sweepExit,
		Example: "  berth sweep ask lr\n  berth sweep ask lr --follow -n 20",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 {
				return usage("-n is a number of tasks")
			}
			s, err := oneSweep(args)
			if err != nil {
				return err
			}
			told := map[int]uint16{} // the round whose result was printed
			for n := 0; ; {
				cancelled := s.Cancelled() // before the look: what ended until then is printed
				f, err := s.Fold()
				if err != nil {
					return err
				}
				l := look.New(s, f)
				var fresh sweep.Numbers
				for t := 1; t <= f.Tasks() && (most == 0 || n < most); t++ {
					if round := f.Round(uint32(t)); f.State(uint32(t)).Result() && told[t] < round {
						told[t] = round
						fresh.Add(t)
						n++
					}
				}
				err = a.printResults(l, fresh)
				l.Close()
				if err != nil {
					return err
				}
				if !follow || cancelled || most > 0 && n >= most {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return exitCode(jobs.CodeInterrupted)
				case <-time.After(sweepPace):
				}
			}
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	c.Flags().IntVarP(&most, "tasks", "n", 0, "print `N` tasks at most, and end then")
	return c
}

// printResults prints a line for each result.
func (a *app) printResults(l *look.Look, numbers sweep.Numbers) error {
	if len(numbers) == 0 {
		return nil
	}
	col, err := look.NewCollector(l, l.Sweep.Spec.Collect)
	if err != nil {
		return err
	}
	defer col.Close()
	_, _, err = col.Lines(a.stdout, numbers, func(look.Row) (bool, error) { return true, nil })
	for _, x := range col.Examples {
		a.say("left out: %s", x)
	}
	return err
}
