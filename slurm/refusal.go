package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/examine"
)

var exitRefusedText = strconv.Itoa(exitRefused)

// The words by which Slurm's own messages are told apart (slurm_errno.c).
var (
	// The request may have arrived although no answer did.
	noAnswer = []string{
		"Socket timed out", "Zero Bytes were transmitted", "Unexpected message received", "receive failure", "send failure",
		"Communication connection failure", "Communication shutdown failure", "Connection reset by peer", "Broken pipe", "Transport endpoint",
	}
	// The connection failed, so nothing was sent.
	controllerDown = []string{
		"Unable to contact slurm controller (connect failure)", "Connection refused", "Unable to establish control machine address",
		"Could not establish a configuration source", "Unable to contact slurm controller",
	}
	// It may work later, unchanged.
	later = []string{
		"temporarily unable", "Rate limit exceeded", "MaxJobCount",
		"Slurm backup controller in standby mode", "Resource temporarily unavailable", "cluster is being drained",
	}
)

// refusal classifies an sbatch that ended by itself and printed no id.
func (s *Scheduler) refusal(ctx context.Context, l jobs.Launch, out output) error {
	// A wrapper may put both streams into one, and a banner around what sbatch
	// says; only where sbatch says nothing does the rest count.
	text := ownWords(out.stderr + "\n" + out.stdout)
	own := text != ""
	if !own {
		text = out.stderr
	}
	said := lastLines(strings.ReplaceAll(text, errorMark, ""), 4)
	switch {
	case out.notThere():
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "sbatch is not installed " + s.where(), Hint: s.missingHint()}
	case containsAny(text, noAnswer):
		return &jobs.Error{Kind: jobs.KindUnclear, Msg: "Slurm gave no clear answer: " + said, Hint: unclearHint}
	case containsAny(text, controllerDown):
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "Slurm's controller does not answer; nothing was submitted: " + said,
			Hint: "try again later; see: scontrol ping"}
	case strings.Contains(text, "sbatch: fatal:"):
		// Slurm's programs use it for what is wrong around the request: a
		// configuration that cannot be read, plugins, credentials.
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "Slurm does not work here; nothing was submitted: " + said,
			Hint: "see: scontrol ping; is SLURM_CONF right?"}
	case containsAny(text, []string{"MaxSubmit", "GrpSubmit"}):
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "Slurm does not take another job now: " + said,
			Hint: "wait until some of your jobs have ended; see: squeue --me. Of each job that may be tried again a second one waits in Slurm, " +
				"which begins the next attempt: --retry off needs no place for it"}
	case containsAny(text, later):
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "Slurm does not take another job now: " + said,
			Hint: "wait until some of your jobs have ended; see: squeue --me"}
	case out.exit.Code == exitRefused, containsAny(text, refusedMarks),
		// The options are read by getopt, whose messages and exit code 255
		// are not sbatch's.
		own && out.exit.Code == 255:
		return &jobs.Error{Kind: jobs.KindRejected, Msg: "Slurm refused the job: " + said, Hint: s.refusalHint(ctx, l, text)}
	}
	msg := fmt.Sprintf("sbatch printed no job id (%s)", out.exit)
	if said := lastLines(text, 4); said != "" {
		msg += ": " + said
	}
	return &jobs.Error{Kind: jobs.KindUnclear, Msg: msg, Hint: unclearHint}
}

const errorMark = "sbatch: error: "

// refusedMarks begin the lines by which sbatch says that it was refused: the
// second is what it says with --test-only.
var refusedMarks = []string{errorMark, "allocation failure: "}

// ownWords returns the lines of sbatch's own among what a wrapper prints
// around them, or "" when there are none. A mark counts anywhere in a line,
// since a wrapper may put the time before it.
func ownWords(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		at := -1
		for _, mark := range []string{errorMark, "sbatch: fatal: ", refusedMarks[1]} {
			if i := strings.Index(line, mark); i >= 0 && (at < 0 || i < at) {
				at = i
			}
		}
		if at < 0 && strings.HasPrefix(line, "sbatch: ") && !strings.HasPrefix(line, "sbatch: warning") {
			at = 0
		}
		if at >= 0 {
			b.WriteString(line[at:] + "\n")
		}
	}
	return b.String()
}

// refusalHint says what to change. What it asks Slurm for is best effort and
// bounded: a hint is worth a moment, not a wait.
func (s *Scheduler) refusalHint(ctx context.Context, l jobs.Launch, text string) string {
	switch {
	case containsAny(text, []string{"nvalid partition", "partition specified"}):
		if names := s.ask(ctx, "sinfo", "-h", "-o", "%R"); len(names) > 0 {
			return "the partitions here are: " + strings.Join(names, ", ")
		}
		return "see the partitions with: sinfo"
	case strings.Contains(text, "getcwd failed"):
		return "the current directory was removed: cd to another one, and repeat"
	case containsAny(text, []string{"nvalid account", "Unspecified account"}):
		return s.accountHint(ctx, l)
	case containsAny(text, []string{"nvalid qos", "Invalid QOS"}):
		return "see your QOS with: sacctmgr show assoc user=" + l.Identity.User + " format=account,partition,qos"
	case strings.Contains(text, "Temporary disk specification"):
		return "no node has that much temporary disk (--tmp); ask for less, or where nodes declare none put forbid = [\"tmp\"] into the profile"
	case containsAny(text, []string{
		"Requested node configuration is not available",
		"Invalid feature",
		"nvalid generic resource",
		"Invalid GRES",
		"nvalid Trackable RESource",
	}):
		return "no node offers this: " + askedFor(l) + "; see what there is with: sinfo -o '%P %c %m %d %G %f'"
	case strings.Contains(text, "unrecognized option"), containsAny(text, []string{"Invalid --", "nvalid option"}):
		return "correct the extra sbatch options of the task or the profile"
	case containsAny(text, []string{"Requested time limit is invalid", "time limit"}):
		return "ask for less time; see: sinfo -o '%P %l'"
	case strings.Contains(text, "accounting/QOS policy"):
		return "a limit of your account or QOS is passed: ask for less, or wait until some of your jobs have ended"
	}
	return s.optionHint(ctx, l, examine.NamedOption(text))
}

// findIt is how the key of a profile that ends a refusal is found.
const findIt = "; berth doctor --on-node --write-profile NAME finds it and writes it"

// optionHint names the key of the profile by which a refusal that names an
// option of the script, or none, ends.
func (s *Scheduler) optionHint(ctx context.Context, l jobs.Launch, name string) string {
	switch name {
	case "":
		return "a rule of the site's refuses it: berth doctor --on-node --write-profile NAME finds the option that it refuses"
	case "account":
		return s.accountHint(ctx, l)
	case "partition":
		return "name one, partition = \"...\" below [slurm] in the profile; see: sinfo -o '%P %a %l'"
	case "qos", "constraint":
		return fmt.Sprintf("name another, or none: %s = \"...\" below [slurm] in the profile; see: sacctmgr show assoc user=%s format=account,qos, "+
			"and sinfo -o '%%P %%f'", name, l.Identity.User)
	}
	return fmt.Sprintf("if the site refuses --%s always, put forbid = [%q] into its profile", name, name) + findIt
}

// accountHint names the account that a site demands, where the user has one.
func (s *Scheduler) accountHint(ctx context.Context, l jobs.Launch) string {
	names := s.accounts(ctx, l)
	if len(names) == 0 {
		return "see your accounts with: sacctmgr show assoc user=" + l.Identity.User + " format=account,partition,qos"
	}
	hint := "your accounts here are: " + strings.Join(names, ", ")
	switch {
	case l.Slurm.Account != "":
	case len(names) == 1:
		hint += fmt.Sprintf("; put account = %q below [slurm] in the profile", names[0]) + findIt
	default:
		hint += "; name one below [slurm] in the profile: account = \"...\""
	}
	return hint
}

// accounts asks for the accounts of the user.
func (s *Scheduler) accounts(ctx context.Context, l jobs.Launch) []string {
	return s.ask(ctx, "sacctmgr", "-nP", "show", "assoc", "user="+l.Identity.User, "format=account")
}

// askedFor lists what a launch asks of a node.
func askedFor(l jobs.Launch) string {
	opts, err := resources(l)
	if err != nil || len(opts) == 0 {
		return "the site's defaults"
	}
	words := make([]string, 0, len(opts))
	for _, o := range opts {
		if o.name != "time" && o.name != "account" && o.name != "qos" {
			words = append(words, "--"+o.name+"="+o.value)
		}
	}
	return strings.Join(words, " ")
}

// ask returns the distinct lines that a command prints, or nothing.
func (s *Scheduler) ask(ctx context.Context, argv ...string) []string {
	out, err := s.command(ctx, 20*time.Second, nil, argv...)
	if err != nil || !out.ok() {
		return nil
	}
	var names []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(out.stdout, "\n") {
		if line = strings.TrimSpace(line); line != "" && !seen[line] && len(names) < 20 {
			seen[line] = true
			names = append(names, line)
		}
	}
	return names
}
