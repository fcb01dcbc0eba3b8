// Package examine looks at a Slurm through its programs and says what works,
// what does not, why, and what to do: the checks of "berth doctor" that know
// Slurm's words. It is part of the program for the nodes, and knows no job
// scripts.
package examine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"berth/jobs"
	"berth/jobs/finding"
	"berth/slurm/site"
)

// errNoSlurm is that Slurm's commands are not here.
var errNoSlurm = errors.New("sbatch and its like are not on PATH")

// Machine is where Slurm's programs are, and for whom they are asked.
type Machine struct {
	// Look finds a program on PATH, or returns "".
	Look func(program string) string
	// Ask runs a program for a time that it bounds itself, and returns what it
	// prints; its error says in a few words why it failed.
	Ask func(ctx context.Context, env []string, argv ...string) (string, error)
	// User is the name of who submits.
	User func() string
	// Profile is what jobs are to use.
	Profile jobs.Profile
}

// Submits tells whether jobs can be submitted where look finds programs.
func Submits(look func(program string) string) bool { return look("sbatch") != "" }

// Site is the Slurm that the programs of a machine belong to.
type Site struct {
	Machine
	config func() (map[string]string, error) // slurmctld's, asked once
}

// New returns the Slurm of a machine. It asks nothing yet; ctx bounds what all
// checks ask together.
func New(ctx context.Context, m Machine) *Site {
	s := &Site{Machine: m}
	s.config = sync.OnceValues(func() (map[string]string, error) { return s.askConfig(ctx) })
	return s
}

// found returns one finding with its data, keys and values in turn.
func found(status finding.Status, why, do string, data ...string) []finding.Finding {
	return []finding.Finding{finding.With(finding.Finding{Status: status, Why: why, Do: do}, data...)}
}

// Check looks at one thing.
type Check struct {
	About string // what it looks at and what its failure means
	// Run returns findings without an id, or none where the same is said elsewhere.
	Run func(ctx context.Context, s *Site) []finding.Finding
}

// The checks, of what a Slurm offers to a user.
var (
	Programs   = Check{"sbatch, squeue, scancel and scontrol are on PATH; the version, against known flaws", checkPrograms}
	Controller = Check{"the controller answers; without it nothing can be submitted or asked", checkController}
	Clock      = Check{"this machine's clock and the controller's agree; munge refuses credentials that are 5 minutes off", needsConfig(checkClock)}
	Accounting = Check{"sacct answers; without it Slurm forgets ended jobs after MinJobAge", needsConfig(checkAccounting)}
	Account    = Check{"the accounts of this user and their limits; that of the profile is one of them", needsConfig(checkAccount)}
	Partitions = Check{"the partition of jobs that name none, or the profile's: it exists and is up; its limits", checkPartitions}
	Limits     = Check{"MaxJobCount and MaxArraySize", needsConfig(checkLimits)}
	Ending     = Check{"KillWait, ProctrackType, preemption, MinJobAge: " +
		"what time a job has to bring its result back, and what may be left of it", needsConfig(checkEnding)}
	Memory = Check{"Slurm hands out memory and holds it; else berth watches it, advisory", needsConfig(checkMemory)}
	Tmp    = Check{"whether each job has a /tmp of its own (job_container/tmpfs)", needsConfig(checkTmp)}
	GPUs   = Check{"the types of GPUs that can be asked for; that of the profile is one of them", needsConfig(checkGPUs)}
)

// ask runs a command of Slurm's.
func (s *Site) ask(ctx context.Context, argv ...string) (string, error) {
	program := s.Look(argv[0])
	if program == "" {
		return "", fmt.Errorf("%s is not on PATH", argv[0])
	}
	return s.Ask(ctx, append(site.Environ(os.Environ()), "TZ=UTC"), append([]string{program}, argv[1:]...)...)
}

// askConfig reads slurmctld's configuration, and when that was, by its clock.
func (s *Site) askConfig(ctx context.Context) (map[string]string, error) {
	if s.Look("scontrol") == "" {
		return nil, errNoSlurm
	}
	begun := time.Now()
	out, err := s.ask(ctx, "scontrol", "show", "config")
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
func needsConfig(check func(ctx context.Context, s *Site, c map[string]string) []finding.Finding) func(context.Context, *Site) []finding.Finding {
	return func(ctx context.Context, s *Site) []finding.Finding {
		c, err := s.config()
		switch {
		case errors.Is(err, errNoSlurm):
			return nil
		case err != nil:
			return finding.One(finding.Skip, "not known: slurmctld could not be asked", "")
		}
		return check(ctx, s, c)
	}
}
