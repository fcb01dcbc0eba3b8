package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"berth/engine"
	"berth/internal/network/credentials"
	"berth/internal/network/judge"
	"berth/internal/network/record"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

// networkOf is a job or an environment, of which a verb is about the network.
type networkOf struct {
	view engine.View
	env  *engine.Environment // nil is that a job is meant
	e    *engine.Engine
	rest []string // of the words
}

// networkTarget reads JOB, or --env NAME, and what follows.
func (a *app) networkTarget(cmd *cobra.Command, env string, words []string) (t networkOf, err error) {
	if cmd.Flags().Changed("env") {
		t.rest = words
		if strings.TrimSpace(env) == "" {
			return t, &jobs.Error{Kind: jobs.KindUsage, Msg: "an environment's name is empty", Hint: "berth env ls"}
		}
		t.env, err = a.existing(env)
		return t, err
	}
	if len(words) == 0 {
		return t, &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a job id, or --env NAME", Hint: "berth ps --all lists the jobs"}
	}
	if t.e, err = a.engine(); err != nil {
		return t, err
	}
	recs, err := find(t.e, words[:1])
	if err != nil {
		return t, err
	}
	views := t.e.Reconcile(cmd.Context(), recs)
	a.warn(views)
	t.view, t.rest = views[0], words[1:]
	return t, nil
}

// what names it for people.
func (t *networkOf) what() string {
	if t.env != nil {
		return "the environment " + t.env.Spec.Name
	}
	return "job " + jobs.Short(t.view.Spec.ID)
}

// recorded is what was recorded of its network.
func (t *networkOf) recorded(ctx context.Context) (*record.File, error) {
	if t.env != nil {
		b, err := t.env.NetworkRecord(ctx)
		if err != nil {
			return nil, err
		}
		return record.Parse(b)
	}
	dir := ""
	if cur := t.view.Current(); cur != nil {
		dir = cur.Dir
	}
	return record.Read(filepath.Join(dir, store.FileNetwork))
}

// use sums it up.
func (t *networkOf) use(f *record.File) *jobs.NetworkUse {
	if t.env == nil {
		if u := engine.NetworkUse(t.view.Record); u != nil {
			return u
		}
	}
	return f.Use()
}

func (a *app) networkShowCmd() *cobra.Command {
	var env string
	var refused, learned bool
	c := &cobra.Command{
		Use: "show JOB | show --env NAME", Short: "show what a job or environment has reached, and what was refused",
		Long: `Show what was decided on the names and connections of a job's current attempt, or of an
environment, oldest first, as far as it is known: also while it runs. There are no paths
and no bodies in it. Of more than 10,000 decisions only the sums are kept, which berth
status and berth explain show; --json has them, too.
Columns: time, phase, decision, host, rule, bytes up, bytes down, seconds, why.

--learned prints the list that would have been enough, as the table [network] of a task
file, and on stderr what it cannot know of: of a job that ran with --learn, or any other.
` + exitHelp + `0 ok, 2 an ambiguous id, 3 no such job or environment, 5 it could not be read.`,
		Example: `  berth network show 0a1b2c3d
  berth network show --refused 0a1b2c3d
  berth network show --learned 0a1b2c3d >>task.toml`,
		RunE: func(cmd *cobra.Command, words []string) error {
			t, err := a.networkTarget(cmd, env, words)
			if err != nil {
				return err
			}
			if t.env != nil {
				defer t.env.Close()
			}
			if len(t.rest) > 0 {
				return usage("%s shows one job, got %q, too", cmd.CommandPath(), t.rest[0])
			}
			f, err := t.recorded(cmd.Context())
			if err != nil {
				return err
			}
			if learned {
				return a.showLearned(record.Learn(f.Lines, t.use(f)))
			}
			return a.showNetwork(&t, f, refused)
		},
	}
	c.Flags().StringVar(&env, "env", "", "of the environment `NAME`")
	c.Flags().BoolVar(&refused, "refused", false, "show only what was refused")
	c.Flags().BoolVar(&learned, "learned", false, "print the list that would have been enough")
	a.jsonFlag(c)
	return c
}

func (a *app) showNetwork(t *networkOf, f *record.File, refused bool) error {
	lines := []record.Line{}
	rows := [][]string{}
	for _, line := range f.Lines {
		if line.Sum != nil || refused && !isRefusal(line) {
			continue
		}
		lines, rows = append(lines, line), append(rows, a.networkLine(line))
	}
	u := t.use(f)
	if a.json {
		return a.printJSON(map[string]any{"lines": lines, "use": u})
	}
	if len(rows) == 0 && a.tty {
		a.say("nothing is recorded of the network of %s", t.what())
		return nil
	}
	if err := a.table([]string{"TIME", "PHASE", "DECISION", "HOST", "RULE", "UP", "DOWN", "SECONDS", "WHY"}, rows); err != nil {
		return err
	}
	if u != nil && u.Unrecorded > 0 {
		a.say("%s more have no line", jobs.Plural(u.Unrecorded, "decision"))
	}
	return nil
}

// isRefusal reports whether a name, a connection or a request was refused.
func isRefusal(line record.Line) bool {
	if u := line.Request; u != nil {
		return u.Usage.Requests == 0 && u.Reason != ""
	}
	return line.Entry != nil && line.Decision == judge.Denied
}

func (a *app) networkLine(line record.Line) []string {
	row := func(phase, decision, host, rule, up, down, seconds, why string) []string {
		return []string{a.when(line.Time), dash(phase), decision, dash(host), dash(rule), up, down, seconds, dash(why)}
	}
	switch e := line.Entry; {
	case line.Allow != nil && line.Allow.Trouble != "":
		return row("", "not added", strings.Join(line.Allow.Words, " "), "", "-", "-", "-", line.Allow.Trouble)
	case line.Allow != nil:
		return row("", "added", strings.Join(line.Allow.Words, " "), "", "-", "-", "-",
			"by "+strings.TrimSuffix(line.Allow.By+" on "+line.Allow.Host, " on "))
	case line.Request != nil:
		return requestRow(line.Request, row)
	case e == nil:
		return row("", "note", "", "", "-", "-", "-", strings.Join(strings.Fields(line.Door+" "+line.Note), " "))
	case e.Port == 0:
		return row(e.Phase, e.Decision, e.Name, e.Rule, "-", "-", "-", entryText(e))
	default:
		n := jobs.NetworkName{Name: e.Name, Port: e.Port}
		if n.Name == "" {
			n.Name = e.Addr
		}
		return row(e.Phase, e.Decision, n.Host(), e.Rule, strconv.FormatInt(e.Up, 10),
			strconv.FormatInt(e.Down, 10), fmt.Sprintf("%.3f", e.Seconds), entryText(e))
	}
}

// requestRow is a request that was carried with a key, or refused.
func requestRow(u *credentials.Use, row func(phase, decision, host, rule, up, down, seconds, why string) []string) []string {
	decision, why := judge.Allowed, strconv.Itoa(u.Status)
	switch {
	case u.Usage.Requests > 0:
		why += " " + u.Model + ", " + u.Usage.String()
	case u.Reason != "":
		decision, why = judge.Denied, u.Reason
	}
	if decision == judge.Allowed && u.Reason != "" {
		why += ": " + u.Reason
	}
	return row(jobs.PhaseCredentials, decision, u.Credential, u.Method, "-", "-", fmt.Sprintf("%.3f", u.Seconds), why)
}

// entryText says why it was not carried to its end, or refused.
func entryText(e *judge.Entry) string {
	text := e.Reason
	if e.Hint != "" {
		text = e.Hint
	}
	if e.Opaque && text == "" {
		text = "opaque"
	}
	return text
}

// showLearned prints the list, ready to be written into a file, and beside it what it
// cannot know of.
func (a *app) showLearned(l record.Learned) error {
	if a.json {
		return a.printJSON(map[string]any{"learned": l})
	}
	if _, err := io.WriteString(a.stdout, l.TOML()); err != nil {
		return err
	}
	a.sayUnseen(l)
	return nil
}

// learned tells a person what the job needed.
func (a *app) learned(v engine.View) {
	t := networkOf{view: v}
	f, err := t.recorded(a.context())
	if err != nil {
		a.say("what it reached cannot be read: %v", err)
		return
	}
	l := record.Learn(f.Lines, t.use(f))
	a.say("this would have been enough (berth network show --learned %s prints it again):", t.id())
	_, _ = io.WriteString(a.stderr, l.TOML())
	a.sayUnseen(l)
}

func (a *app) sayUnseen(l record.Learned) {
	for _, r := range l.Refused {
		a.say("refused, and not on the list: %s", r)
	}
	for _, u := range l.Unseen {
		a.say("not seen: %s", u)
	}
}
