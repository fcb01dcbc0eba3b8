package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
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
		"temporarily unable", "Rate limit exceeded", "MaxSubmit", "GrpSubmit", "MaxJobCount",
		"Slurm backup controller in standby mode", "Resource temporarily unavailable", "cluster is being drained",
	}
)

// refusal classifies an sbatch that ended by itself and printed no id.
func (s *Scheduler) refusal(ctx context.Context, l jobs.Launch, out output) error {
	text := out.stderr
	said := lastLines(ownWords(text), 4)
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
	case containsAny(text, later):
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "Slurm does not take another job now: " + said,
			Hint: "wait until some of your jobs have ended; see: squeue --me"}
	case out.exit.Code == exitRefused, strings.Contains(text, "sbatch: error:"),
		// The options are read by getopt, whose messages and exit code 255
		// are not sbatch's.
		out.exit.Code == 255 && strings.HasPrefix(said, "sbatch:"):
		return &jobs.Error{Kind: jobs.KindRejected, Msg: "Slurm refused the job: " + said, Hint: s.refusalHint(ctx, l, text)}
	}
	return &jobs.Error{Kind: jobs.KindUnclear, Msg: fmt.Sprintf("sbatch printed no job id (%s): %s", out.exit, lastLines(text, 4)), Hint: unclearHint}
}

// ownWords drops what a wrapper prints around sbatch's messages, when there
// are any.
func ownWords(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "sbatch: error: "); ok {
			b.WriteString(rest + "\n")
		} else if strings.HasPrefix(line, "sbatch: ") && !strings.HasPrefix(line, "sbatch: warning") {
			b.WriteString(line + "\n")
		}
	}
	if b.Len() == 0 {
		return text
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
	case containsAny(text, []string{"nvalid account", "Unspecified account"}):
		if names := s.ask(ctx, "sacctmgr", "-nP", "show", "assoc", "user="+l.Identity.User, "format=account"); len(names) > 0 {
			return "your accounts here are: " + strings.Join(names, ", ")
		}
		return "see your accounts with: sacctmgr show assoc user=" + l.Identity.User + " format=account,partition,qos"
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
	if name := namedOption(text); name != "" {
		return fmt.Sprintf("if the site refuses --%s always, put forbid = [%q] into its profile", name, name)
	}
	return ""
}

var optionWord = pattern.Lazy(`--([a-z][a-z-]*)`)

// namedOption is an option of the script that a site's own words mention, as a
// job_submit plugin that refuses --mem does.
func namedOption(text string) string {
	for _, m := range optionWord().FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case "mem", "tmp", "time", "gres", "gpus", "cpus-per-task", "nodes", "ntasks", "constraint",
			"comment", "dependency", "open-mode", "kill-on-invalid-dep", "no-requeue":
			return m[1]
		}
	}
	return ""
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
