package slurm

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"berth/jobs"

	"al.essio.dev/pkg/shellescape"
)

// Crontab is an entry of berth's own in the user's scrontab (scrontab(1)), by
// which Slurm itself runs "berth follow" again and again, whoever is logged in.
type Crontab struct {
	// Home is the state directory that the entry is for; each has its own.
	Home string
	// Node is berth's program for the nodes, at a path that they see.
	Node string
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

// Lines around an entry. What is between them, and nothing else, is berth's.
const (
	crontabBegin = "# begin of berth, which follows the jobs of "
	crontabEnd   = "# end of berth, which follows the jobs of "
)

// render is the entry. The job that Slurm makes of it has one name at all sites.
func (c Crontab) render() (string, error) {
	when, err := schedule(c.Every)
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
		{"job-name", "berth-follow"},
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
	command := shellescape.QuoteCommand([]string{"env", "BERTH_HOME=" + c.Home, c.Node, jobs.VerbFollow, "--all"})
	// A percent sign ends the command there (crontab(5)).
	for _, text := range []string{c.Home, command} {
		if err := jobs.CheckText("the entry of scrontab", text); err != nil {
			return "", err
		}
		if strings.Contains(text, "%") {
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "a path with % cannot stand in scrontab: " + c.Home,
				Hint: "BERTH_HOME names another state directory"}
		}
	}
	return crontabBegin + c.Home + "\n" + strings.Join(words, " ") + "\n" + when + " " + command + "\n" + crontabEnd + c.Home + "\n", nil
}

// schedule writes an interval as crontab(5) has it.
func schedule(every time.Duration) (string, error) {
	m := int(every / time.Minute)
	switch {
	case every%time.Minute != 0 || m < 1:
	case m == 1:
		return "* * * * *", nil
	case m < 60 && 60%m == 0:
		return fmt.Sprintf("*/%d * * * *", m), nil
	case m == 60:
		return "0 * * * *", nil
	case m%60 == 0 && m < 24*60 && 24%(m/60) == 0:
		return fmt.Sprintf("0 */%d * * *", m/60), nil
	case m == 24*60:
		return "0 0 * * *", nil
	}
	return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is no interval of crontab's", every),
		Hint: "whole minutes that divide an hour, or hours that divide a day: 10m, 30m, 2h"}
}

// without takes the entry of a state directory out of a crontab, and returns it.
// An entry whose first or last line is missing is not touched.
func without(crontab, home string) (rest, entry string, err error) {
	begin, end := crontabBegin+home+"\n", crontabEnd+home+"\n"
	if crontab != "" && !strings.HasSuffix(crontab, "\n") {
		crontab += "\n"
	}
	lines := strings.SplitAfter(crontab, "\n")
	in, seen := false, 0
	var kept, own strings.Builder
	for _, line := range lines {
		if line == begin {
			if in || seen > 0 {
				return "", "", cutEntry(home)
			}
			in = true
			seen++
		}
		if in {
			own.WriteString(line)
		} else {
			kept.WriteString(line)
		}
		if line == end {
			if !in {
				return "", "", cutEntry(home)
			}
			in = false
		}
	}
	if in {
		return "", "", cutEntry(home)
	}
	return kept.String(), own.String(), nil
}

func cutEntry(home string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "berth's entry for " + home + " in your scrontab was changed: its first and last line do not match",
		Hint: "repair or remove it: scrontab -e"}
}

// SetCrontab puts the entry into the user's scrontab, in place of one for the
// same state directory. It tells whether that changed anything.
func (s *Scheduler) SetCrontab(ctx context.Context, c Crontab) (bool, error) {
	entry, err := c.render()
	if err != nil {
		return false, err
	}
	return s.editCrontab(ctx, c.Home, entry)
}

// DropCrontab takes the entry of a state directory out of the user's scrontab.
// It tells whether there was one.
func (s *Scheduler) DropCrontab(ctx context.Context, home string) (bool, error) {
	return s.editCrontab(ctx, home, "")
}

// Crontab returns the entry of a state directory, or "".
func (s *Scheduler) Crontab(ctx context.Context, home string) (string, error) {
	all, err := s.listCrontab(ctx)
	if err != nil {
		return "", err
	}
	_, entry, err := without(all, home)
	return entry, err
}

func (s *Scheduler) editCrontab(ctx context.Context, home, entry string) (bool, error) {
	all, err := s.listCrontab(ctx)
	if err != nil {
		return false, err
	}
	rest, was, err := without(all, home)
	if err != nil || was == entry {
		return false, err
	}
	rest += entry
	argv := []string{"scrontab", "-r"}
	if strings.TrimSpace(rest) != "" {
		dir, err := os.MkdirTemp("", "berth-scrontab-")
		if err != nil {
			return false, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file := path.Join(dir, "crontab")
		if err := os.WriteFile(file, []byte(rest), 0o600); err != nil {
			return false, err
		}
		argv = []string{"scrontab", file}
	}
	out, err := s.command(ctx, s.cfg.SubmitTimeout, nil, argv...)
	s.share().changed()
	if err != nil {
		return false, s.infra("scrontab", err)
	}
	if !out.ok() {
		return false, crontabError(out)
	}
	return true, nil
}

// listCrontab returns the user's whole scrontab, "" when there is none.
func (s *Scheduler) listCrontab(ctx context.Context) (string, error) {
	out, err := s.command(ctx, s.cfg.QueryTimeout, nil, "scrontab", "-l")
	switch {
	case err != nil && !out.notThere():
		return "", s.infra("scrontab", err)
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
