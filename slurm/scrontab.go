package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/crontab"
	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
)

// Crontab is an entry of berth's own in the user's scrontab (scrontab(1)), by
// which Slurm itself runs a command again and again, whoever is logged in.
type Crontab struct {
	// Entry names it: the state directory that it is for, and what it does.
	Entry crontab.Entry
	// Job is the name of the job that Slurm makes of it, the same at all sites.
	Job string
	// Argv is a program at a path that the nodes see, with its arguments, and Env what it
	// has in its environment.
	Argv, Env []string
	// Every is a whole number of minutes that divides an hour, or of hours that
	// divides a day.
	Every   time.Duration
	Options jobs.SlurmOptions
}

// What one run of the entry may use.
const (
	crontabTime   = 10 * time.Minute
	crontabMemory = 512 * jobs.MiB
)

// render is the entry.
func (c Crontab) render() (string, error) {
	when, err := crontab.Interval(c.Every)
	if err != nil {
		return "", err
	}
	opts, dependency, err := extras(c.Options.Extra)
	if err != nil {
		return "", err
	}
	if dependency != "" {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "an entry of scrontab has no --dependency"}
	}
	all := []option{
		{"job-name", c.Job},
		{"output", "/dev/null"},
		{"time", strconv.Itoa(int(crontabTime / time.Minute))},
		{"mem", strconv.FormatInt(crontabMemory.MiB(), 10) + "M"},
	}
	for _, o := range []option{
		{"partition", c.Options.Partition},
		{"account", c.Options.Account},
		{"qos", c.Options.QOS},
		{"constraint", c.Options.Constraint},
	} {
		if o.value != "" {
			all = append(all, o)
		}
	}
	words := []string{"#SCRON"}
	for _, o := range append(all, opts...) {
		word := directive(o)
		if strings.ContainsAny(word, " \"'\\#%") {
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the option %q cannot stand in scrontab", word),
				Hint: "it may hold no blanks, quotes, # or %"}
		}
		words = append(words, word)
	}
	command := shellescape.QuoteCommand(slices.Concat([]string{"env"}, c.Env, c.Argv))
	return c.Entry.Text(strings.Join(words, " "), when+" "+command)
}

// SetCrontab puts the entry into the user's scrontab, in place of one of the same
// name. It tells whether that changed anything.
func (s *Scheduler) SetCrontab(ctx context.Context, c Crontab) (bool, error) {
	entry, err := c.render()
	if err != nil {
		return false, err
	}
	return crontab.Put(ctx, tab{s}, c.Entry, entry)
}

// DropCrontab takes an entry out of the user's scrontab. It tells whether there was one.
func (s *Scheduler) DropCrontab(ctx context.Context, e crontab.Entry) (bool, error) {
	return crontab.Put(ctx, tab{s}, e, "")
}

// Crontab returns an entry, or "".
func (s *Scheduler) Crontab(ctx context.Context, e crontab.Entry) (string, error) {
	all, err := tab{s}.Read(ctx)
	if err != nil {
		return "", err
	}
	_, entry, err := e.Without(all)
	return entry, err
}

// tab is the user's scrontab.
type tab struct{ s *Scheduler }

func (t tab) Write(ctx context.Context, file string) error {
	argv := []string{"scrontab", file}
	if file == "" {
		argv[1] = "-r"
	}
	out, err := t.s.command(ctx, t.s.cfg.SubmitTimeout, nil, argv...)
	t.s.share().changed()
	if err != nil {
		return t.s.infra("scrontab", err)
	}
	if !out.ok() {
		return crontabError(out)
	}
	return nil
}

func (t tab) Read(ctx context.Context) (string, error) {
	out, err := t.s.command(ctx, t.s.cfg.QueryTimeout, nil, "scrontab", "-l")
	switch {
	case err != nil && !out.notThere():
		return "", t.s.infra("scrontab", err)
	case out.ok():
		return out.stdout, nil
	case strings.Contains(out.stdout+out.stderr, "no crontab for"):
		return "", nil
	}
	return "", crontabError(out)
}

// crontabError tells a site without scrontab from one where it failed.
func crontabError(out output) error {
	switch {
	case out.notThere():
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "this Slurm has no scrontab (it came with 20.11)", Hint: hintCrontab}
	case strings.Contains(out.stderr, "disabled"):
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "scrontab is disabled on this cluster (ScronParameters in slurm.conf)", Hint: hintCrontab}
	}
	return out.failure()
}

// hintCrontab is what does the same where Slurm does not.
const hintCrontab = "a line in the crontab of a login node does the same (crontab -e): */10 * * * * berth follow"
