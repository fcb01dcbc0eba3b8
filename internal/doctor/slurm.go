package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"berth/slurm/site"
)

// errNoSlurm is that Slurm's commands are not here.
var errNoSlurm = errors.New("sbatch and its like are not on PATH")

func (l *look) slurmEnv() []string {
	return append(site.Environ(os.Environ()), "TZ=UTC")
}

// askSlurm runs a command of Slurm's.
func (l *look) askSlurm(ctx context.Context, argv ...string) (string, error) {
	program := l.look(argv[0])
	if program == "" {
		return "", fmt.Errorf("%s is not on PATH", argv[0])
	}
	return l.ask(ctx, l.slurmEnv(), append([]string{program}, argv[1:]...)...)
}

// askConfig reads slurmctld's configuration, and when that was, by its clock.
func (l *look) askConfig(ctx context.Context) (map[string]string, error) {
	if l.look("scontrol") == "" {
		return nil, errNoSlurm
	}
	begun := time.Now()
	out, err := l.askSlurm(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	c := site.Config(out)
	if len(c) < 3 {
		return nil, fmt.Errorf("scontrol show config printed no configuration: %.100q", out)
	}
	c[keyBegun] = begun.UTC().Format(time.RFC3339Nano)
	c[keyAsOf] = asOf(out)
	return c, nil
}

// Keys of our own in the configuration; Slurm's have no blank.
const (
	keyBegun = "berth begun"
	keyAsOf  = "berth as of"
)

// asOf reads "Configuration data as of 2026-11-21T15:06:06", the controller's
// clock in UTC.
func asOf(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		if t, ok := strings.CutPrefix(strings.TrimSpace(line), "Configuration data as of "); ok {
			return t
		}
	}
	return ""
}

// needsConfig runs a check that reads slurmctld's configuration; without one
// there is nothing to say, and the check of the controller has said why.
func needsConfig(check func(ctx context.Context, l *look, c map[string]string) []Finding) func(context.Context, *look) []Finding {
	return func(ctx context.Context, l *look) []Finding {
		c, err := l.slurm()
		switch {
		case errors.Is(err, errNoSlurm):
			return nil
		case err != nil:
			return one(Skip, "not known: slurmctld could not be asked", "")
		}
		return check(ctx, l, c)
	}
}

// checkSlurmPrograms looks for the commands that berth calls.
func checkSlurmPrograms(ctx context.Context, l *look) []Finding {
	need := []string{"sbatch", "squeue", "scancel", "scontrol"}
	var missing []string
	for _, p := range need {
		if l.look(p) == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) == len(need) {
		return one(Skip, "sbatch is not on PATH: this machine submits to no Slurm", "run it on the cluster's login node; berth works without Slurm too (--scheduler local)")
	}
	if len(missing) > 0 {
		return one(Fail, "not on PATH: "+strings.Join(missing, ", "), "ask the site for Slurm's client commands on this machine")
	}
	out, err := l.askSlurm(ctx, "sbatch", "--version")
	if err != nil {
		return one(Fail, "sbatch does not run: "+err.Error(), "try: sbatch --version")
	}
	v := site.Version(out)
	if v == "" {
		return one(Warn, fmt.Sprintf("sbatch --version printed no version: %.80q", lastLine(out)), "")
	}
	f := Finding{Status: OK, Why: "Slurm " + v}
	if l.look("srun") == "" {
		f.Status, f.Why, f.Do = Warn, f.Why+", without srun: a held environment cannot be reached", "ask the site for srun"
	}
	if n, ok := numbers(v); ok && n[0] < 22 {
		f.Status, f.Why, f.Do = Warn, f.Why+" is older than what berth was tried with (22.05)", ""
	}
	return append([]Finding{with(f, "version", v)}, flawFindings("Slurm's version", "slurm", v, false)...)
}

// checkController asks slurmctld for a sign of life.
func checkController(ctx context.Context, l *look) []Finding {
	c, err := l.slurm()
	switch {
	case errors.Is(err, errNoSlurm):
		return nil
	case err != nil:
		return one(Fail, "slurmctld does not answer: "+err.Error(), "see: scontrol ping; is SLURM_CONF right? Else wait, or ask the site")
	}
	host := c["SlurmctldHost[0]"]
	if host == "" {
		host = "its host"
	}
	return []Finding{with(Finding{Status: OK, Why: "slurmctld on " + host + " answers, cluster " + c["ClusterName"]}, "cluster", c["ClusterName"], "version", c["SLURM_VERSION"])}
}

// checkClock compares this machine's clock with slurmctld's: munge refuses a
// credential that is older than 5 minutes, or from the future.
func checkClock(_ context.Context, _ *look, c map[string]string) []Finding {
	there, err := time.Parse("2006-01-02T15:04:05", c[keyAsOf])
	begun, err2 := time.Parse(time.RFC3339Nano, c[keyBegun])
	if err != nil || err2 != nil {
		return one(Skip, "scontrol tells no time of its answer", "")
	}
	skew := there.Sub(begun)
	if skew < 0 {
		skew = max(-skew-time.Second, 0) // it tells whole seconds
	} else {
		skew = max(skew-time.Since(begun), 0)
	}
	skew = skew.Round(time.Second)
	f := with(Finding{Status: OK, Why: "the clocks of this machine and slurmctld agree"}, "skew", skew.String())
	switch {
	case skew >= 4*time.Minute:
		f.Status, f.Why, f.Do = Fail, "this machine's clock is "+skew.String()+" from slurmctld's: munge refuses credentials after 5 minutes", "set the clock: chronyc tracking; timedatectl"
	case skew > 10*time.Second:
		f.Status, f.Why, f.Do = Warn, "this machine's clock is "+skew.String()+" from slurmctld's", "set the clock: chronyc tracking; timedatectl"
	}
	return []Finding{f}
}

// checkAccounting looks whether ended jobs can be looked up.
func checkAccounting(ctx context.Context, l *look, c map[string]string) []Finding {
	kind := c["AccountingStorageType"]
	if !strings.HasSuffix(kind, "slurmdbd") {
		return []Finding{with(Finding{Status: Warn, Why: "there is no slurmdbd: an ended job is forgotten " + age(c["MinJobAge"]) + " after its end; berth's own records still tell how it ended",
			Do: ""}, "accounting", "no")}
	}
	if l.look("sacct") == "" {
		return one(Warn, "slurmdbd is configured and sacct is not on PATH: how ended jobs went is told by berth's own records only", "ask the site for sacct")
	}
	if _, err := l.askSlurm(ctx, "sacct", "-X", "-P", "-n", "-S", "now-1minutes", "-o", "JobIDRaw"); err != nil {
		return one(Warn, "sacct does not answer: "+err.Error(), "wait, or ask the site about slurmdbd; meanwhile berth's own records tell how jobs ended")
	}
	return []Finding{with(Finding{Status: OK, Why: "sacct answers"}, "accounting", "yes")}
}

func age(s string) string {
	if d, ok := site.Seconds(s); ok {
		return d.String()
	}
	return "some minutes"
}
