package slurm

import (
	"context"
	"errors"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/site"
)

// Check asks sbatch for its version and the controller for a sign of life. It
// takes at most half a minute: scontrol itself waits 10 s for a busy controller.
func (s *Scheduler) Check(ctx context.Context) jobs.Checked {
	const each = 15 * time.Second
	out, err := s.command(ctx, each, nil, "sbatch", "--version")
	if err != nil || !out.ok() {
		var start *startError
		if err != nil && !(errors.As(err, &start) && missing(err)) {
			return jobs.Checked{Health: jobs.Unhealthy, Reason: "sbatch does not run: " + err.Error(), Hint: "try: sbatch --version"}
		}
		if err == nil && !out.notThere() {
			return jobs.Checked{Health: jobs.Unhealthy, Reason: "sbatch does not run: " + lastLines(out.stderr, 2), Hint: "try: sbatch --version"}
		}
		return jobs.Checked{Health: jobs.Undetected, Reason: "sbatch is not installed " + s.where(), Hint: s.missingHint()}
	}
	version := site.Version(out.stdout)
	if s.share().answered() {
		return jobs.Checked{Health: jobs.Healthy, Reason: "Slurm " + version + " answers", Version: version}
	}
	out, err = s.command(ctx, each, nil, "scontrol", "ping")
	if err == nil && out.ok() && controllerUp(out.stdout) {
		return jobs.Checked{Health: jobs.Healthy, Reason: "Slurm " + version + " answers", Version: version}
	}
	said := lastLines(out.stdout+"\n"+out.stderr, 2)
	if err != nil {
		said = err.Error()
	}
	return jobs.Checked{Health: jobs.Unhealthy, Version: version, Reason: "Slurm's controller does not answer: " + said,
		Hint: "try again later; see: scontrol ping"}
}

// controllerUp reads "Slurmctld(primary) at HOST is UP"; one controller of
// several suffices.
func controllerUp(ping string) bool {
	for line := range strings.SplitSeq(ping, "\n") {
		if strings.HasPrefix(line, "Slurmctld(") && strings.HasSuffix(strings.TrimSpace(line), " UP") {
			return true
		}
	}
	return false
}

// KillWait is the time between TERM and KILL when Slurm ends a job
// (slurm.conf(5), KillWait).
func (s *Scheduler) KillWait(ctx context.Context) (time.Duration, error) {
	config, err := s.settings(ctx)
	if err != nil {
		return 0, err
	}
	d, ok := site.Seconds(config["KillWait"])
	if !ok {
		return 0, &jobs.Error{Kind: jobs.KindInfra, Msg: "scontrol show config has no KillWait"}
	}
	return d, nil
}

// accounting tells whether ended jobs can be looked up in slurmdbd.
func (s *Scheduler) accounting(ctx context.Context) (bool, error) {
	config, err := s.settings(ctx)
	if err != nil {
		return false, err
	}
	return strings.HasSuffix(config["AccountingStorageType"], "slurmdbd"), nil
}

// settings is slurmctld's configuration, asked for once, and rarely by all
// processes of the user here; a failure is not remembered.
func (s *Scheduler) settings(ctx context.Context) (map[string]string, error) {
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	if config != nil {
		return config, nil
	}
	out := s.share().kept(configs, configFor)
	if out == "" {
		var err error
		if out, err = s.query(ctx, "scontrol", "show", "config"); err != nil {
			return nil, err
		}
		s.share().keep(configs, out)
	}
	config = site.Config(out)
	s.mu.Lock()
	s.config = config
	s.mu.Unlock()
	return config, nil
}
