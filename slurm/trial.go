package slurm

import (
	"context"
	"strings"

	"berth/jobs"
)

// TestOnly asks Slurm whether it would take a job, and submits nothing: the site's
// plugins and the controller see the script as they see that of a job. It costs
// an id. An error of kind rejected is Slurm's refusal; any other is no answer.
func (s *Scheduler) TestOnly(ctx context.Context, l jobs.Launch, scriptPath string) error {
	if err := s.share().turn(ctx); err != nil {
		return err
	}
	out, err := s.command(ctx, s.cfg.SubmitTimeout, []string{"SLURM_EXIT_ERROR=" + exitRefusedText}, "sbatch", "--test-only", scriptPath)
	if err != nil {
		return s.infra("sbatch", err)
	}
	text := out.stderr + out.stdout
	if startPattern().MatchString(text) {
		return nil
	}
	err = s.refusal(ctx, l, out)
	if jobs.KindOf(err) == jobs.KindRejected && containsAny(text, []string{"test-only", "Job dependency problem", "Requested nodes are busy"}) {
		// A wrapper refuses the option, and not the job; or the job would only wait.
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "sbatch --test-only does not work here", Err: err}
	}
	return err
}

// Sends returns the names of the options that the script of a launch has.
func (*Scheduler) Sends(l jobs.Launch) (names []string) {
	lines, err := header(l)
	if err != nil {
		return nil
	}
	for _, line := range lines {
		if o, ok := strings.CutPrefix(line, "#SBATCH --"); ok {
			name, _, _ := strings.Cut(o, "=")
			names = append(names, name)
		}
	}
	return names
}
