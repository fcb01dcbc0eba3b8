package examine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// forbiddable are the options of the job script that a profile may forbid, the
// likeliest to be refused first.
var forbiddable = []string{
	"dependency", "requeue", "mem", "time", "tmp", "signal", "kill-on-invalid-dep", "cpus-per-task", "open-mode", "comment", "no-requeue",
	"gres", "gpus", "nodes", "ntasks", "begin", "exclude", "output",
}

// chosen are the options that a profile gives a value.
var chosen = []string{"account", "partition", "qos", "constraint"}

var optionWord = pattern.Lazy(`--([a-z][a-z-]*)`)

// NamedOption is an option of the job script that a site's own words mention, as
// a job_submit plugin that refuses --mem does, or "".
func NamedOption(said string) string {
	for _, m := range optionWord().FindAllStringSubmatch(said, -1) {
		if slices.Contains(forbiddable, m[1]) || slices.Contains(chosen, m[1]) {
			return m[1]
		}
	}
	return ""
}

// mostTries bounds the search of [Fit].
const mostTries = 30

// Fit changes a job that the site refuses until it is taken: options are left out
// (its profile's forbid) and the user's only account is named.
type Fit struct {
	Accounts []string // the user's
	// Try submits the job, or asks whether it would be taken. An error of kind
	// rejected is a refusal; any other ends the search.
	Try func(ctx context.Context, l jobs.Launch) error
	// Sends returns the options that the job's script has.
	Sends func(l jobs.Launch) []string
	Say   func(line string)
	// Once tells that a job which is taken is submitted: the first one is enough.
	Once bool

	tries int
}

// change is one way to ask for less, or for what the site demands.
type change struct{ forbid, account string }

func (c change) String() string {
	if c.account != "" {
		return "with --account=" + c.account
	}
	return "without --" + c.forbid
}

func (c change) of(l jobs.Launch) jobs.Launch {
	if c.account != "" {
		l.Slurm.Account = c.account
		return l
	}
	l.Profile.Forbid = append(slices.Clone(l.Profile.Forbid), c.forbid)
	return l
}

// Run returns the job as it is taken; with an error, which is the first refusal,
// no change helps.
func (f *Fit) Run(ctx context.Context, l jobs.Launch) (jobs.Launch, error) {
	err := f.Try(ctx, l)
	// What the refusal names comes first: it may name one after the other.
	for refused(err) {
		c, ok := f.named(l, err)
		if !ok {
			break
		}
		f.say(err, c.String())
		next := f.Try(ctx, c.of(l))
		if refused(next) && next.Error() == err.Error() {
			break // it is not that
		}
		if next == nil && !f.Once {
			f.Say("Slurm takes it " + c.String())
		}
		l, err = c.of(l), next
	}
	if !refused(err) {
		return l, err
	}
	if _, ok := f.account(l); !ok && wantsAccount(err) {
		return l, err // no option is in the way, and which account pays is no guess of ours
	}
	f.say(err, "one option after the other is left out to find what it is")
	ways := f.ways(l, err)
	for _, c := range ways {
		if fits, other := f.fits(ctx, c.of(l), c.String()); fits || other != nil {
			return c.of(l), other
		}
	}
	if f.Once {
		return l, err
	}
	// It may be two of them. All are left out, and those put back that do no harm.
	var out []change
	for _, c := range ways {
		if c.forbid != "" {
			out = append(out, c)
		}
	}
	without := func(out []change) jobs.Launch {
		l := l
		for _, c := range out {
			l = c.of(l)
		}
		return l
	}
	if fits, other := f.fits(ctx, without(out), "without all of them"); !fits {
		return l, cmp.Or(other, err)
	}
	for _, c := range slices.Clone(out) {
		less := slices.DeleteFunc(slices.Clone(out), func(o change) bool { return o == c })
		fits, other := f.fits(ctx, without(less), "with --"+c.forbid+" again")
		if other != nil {
			return l, other
		}
		if fits {
			out = less
		}
	}
	return without(out), nil
}

func refused(err error) bool { return jobs.KindOf(err) == jobs.KindRejected }

// fits tries a job that was changed. An error is one that is no refusal.
func (f *Fit) fits(ctx context.Context, l jobs.Launch, how string) (bool, error) {
	if f.tries++; f.tries > mostTries {
		return false, nil
	}
	err := f.Try(ctx, l)
	switch {
	case err == nil:
		f.Say("Slurm takes it " + how)
		return true, nil
	case refused(err):
		f.Say("Slurm refuses it " + how)
		return false, nil
	}
	return false, err
}

func (f *Fit) say(err error, then string) {
	f.Say(err.Error() + "; trying: " + then)
}

// named is the change that a refusal asks for in its words.
func (f *Fit) named(l jobs.Launch, err error) (change, bool) {
	if f.tries++; f.tries > mostTries {
		return change{}, false
	}
	switch name := NamedOption(err.Error()); {
	case wantsAccount(err):
		return f.account(l)
	case name == "" || slices.Contains(chosen, name) || !slices.Contains(f.Sends(l), name):
		return change{}, false
	default:
		return change{forbid: name}, true
	}
}

// wantsAccount reports whether a refusal is about the account.
func wantsAccount(err error) bool {
	return NamedOption(err.Error()) == "account" || containsAny(err.Error(), "nvalid account", "Unspecified account")
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// account names the user's account, where none is named and there is one.
func (f *Fit) account(l jobs.Launch) (change, bool) {
	if l.Slurm.Account != "" || len(f.Accounts) != 1 {
		return change{}, false
	}
	return change{account: f.Accounts[0]}, true
}

// measured are the options that say what a node must have.
var measured = []string{"mem", "tmp", "cpus-per-task", "gres", "gpus", "nodes", "ntasks", "exclude"}

// ways are all changes that may help against a refusal.
func (f *Fit) ways(l jobs.Launch, err error) (out []change) {
	// No node is there that has it, as also where all are drained.
	nodes := strings.Contains(err.Error(), "node configuration is not available")
	if c, ok := f.account(l); ok && !nodes {
		out = append(out, c)
	}
	sends := f.Sends(l)
	for _, o := range forbiddable {
		if slices.Contains(sends, o) && (!nodes || slices.Contains(measured, o)) {
			out = append(out, change{forbid: o})
		}
	}
	return out
}

// Forbid is what a person writes into a profile against a refused option.
func Forbid(option string) string { return fmt.Sprintf("forbid = [%q] in a profile", option) }
