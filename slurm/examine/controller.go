package examine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/jobs/finding"
	"berth/slurm/site"
)

// checkPrograms looks for the commands that berth calls.
func checkPrograms(ctx context.Context, s *Site) []finding.Finding {
	need := []string{"sbatch", "squeue", "scancel", "scontrol"}
	var missing []string
	for _, p := range need {
		if s.Look(p) == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) == len(need) {
		return finding.One(finding.Skip, "sbatch is not on PATH: this machine submits to no Slurm",
			"run it on the cluster's login node; berth works without Slurm too (--scheduler local)")
	}
	if len(missing) > 0 {
		return finding.One(finding.Fail, "not on PATH: "+strings.Join(missing, ", "), "ask the site for Slurm's client commands on this machine")
	}
	out, err := s.ask(ctx, "sbatch", "--version")
	if err != nil {
		return finding.One(finding.Fail, "sbatch does not run: "+err.Error(), "try: sbatch --version")
	}
	v := site.Version(out)
	if v == "" {
		return finding.One(finding.Warn, fmt.Sprintf("sbatch --version printed no version: %.80q", finding.LastLine(out)), "")
	}
	f := finding.Finding{Status: finding.OK, Why: "Slurm " + v}
	if s.Look("srun") == "" {
		f.Status, f.Why, f.Do = finding.Warn, f.Why+", without srun: a held environment cannot be reached", "ask the site for srun"
	}
	if n, ok := finding.Numbers(v); ok && n[0] < 22 {
		f.Status, f.Why, f.Do = finding.Warn, f.Why+" is older than what berth was tried with (22.05)", ""
	}
	return append([]finding.Finding{finding.With(f, "version", v)}, finding.Flaws(flaws, "Slurm's version", v, false)...)
}

// checkController asks slurmctld for a sign of life.
func checkController(ctx context.Context, s *Site) []finding.Finding {
	c, err := s.config()
	switch {
	case errors.Is(err, errNoSlurm):
		return nil
	case err != nil:
		return finding.One(finding.Fail, "slurmctld does not answer: "+err.Error(),
			"see: scontrol ping; is SLURM_CONF right? Else wait, or ask the site")
	}
	host := c["SlurmctldHost[0]"]
	if host == "" {
		host = "its host"
	}
	return found(finding.OK, "slurmctld on "+host+" answers, cluster "+c["ClusterName"], "",
		"cluster", c["ClusterName"], "version", c["SLURM_VERSION"])
}

// checkClock compares this machine's clock with slurmctld's: munge refuses a
// credential that is older than 5 minutes, or from the future.
func checkClock(_ context.Context, _ *Site, c map[string]string) []finding.Finding {
	there, err := time.Parse("2006-01-02T15:04:05", c[keyAsOf])
	begun, err2 := time.Parse(time.RFC3339Nano, c[keyBegun])
	if err != nil || err2 != nil {
		return finding.One(finding.Skip, "scontrol tells no time of its answer", "")
	}
	skew := there.Sub(begun)
	if skew < 0 {
		skew = max(-skew-time.Second, 0) // it tells whole seconds
	} else {
		skew = max(skew-time.Since(begun), 0)
	}
	skew = skew.Round(time.Second)
	f := finding.With(finding.Finding{Status: finding.OK, Why: "the clocks of this machine and slurmctld agree"}, "skew", skew.String())
	switch {
	case skew >= 4*time.Minute:
		f.Status, f.Do = finding.Fail, "set the clock: chronyc tracking; timedatectl"
		f.Why = "this machine's clock is " + skew.String() + " from slurmctld's: munge refuses credentials after 5 minutes"
	case skew > 10*time.Second:
		f.Status, f.Why, f.Do = finding.Warn, "this machine's clock is "+skew.String()+" from slurmctld's",
			"set the clock: chronyc tracking; timedatectl"
	}
	return []finding.Finding{f}
}

// checkAccounting looks whether ended jobs can be looked up.
func checkAccounting(ctx context.Context, s *Site, c map[string]string) []finding.Finding {
	kind := c["AccountingStorageType"]
	if !strings.HasSuffix(kind, "slurmdbd") {
		why := "there is no slurmdbd: an ended job is forgotten " + age(c["MinJobAge"]) + " after its end; " +
			"berth's own records still tell how it ended"
		return found(finding.Warn, why, "", "accounting", "no")
	}
	if s.Look("sacct") == "" {
		return finding.One(finding.Warn, "slurmdbd is configured and sacct is not on PATH: how ended jobs went is told by berth's own records only",
			"ask the site for sacct")
	}
	if _, err := s.ask(ctx, "sacct", "-X", "-P", "-n", "-S", "now-1minutes", "-o", "JobIDRaw"); err != nil {
		return finding.One(finding.Warn, "sacct does not answer: "+err.Error(),
			"wait, or ask the site about slurmdbd; meanwhile berth's own records tell how jobs ended")
	}
	return found(finding.OK, "sacct answers", "", "accounting", "yes")
}

func age(s string) string {
	if d, ok := site.Seconds(s); ok {
		return d.String()
	}
	return "some minutes"
}
