package slurm

import (
	"os"
	"strings"
	"time"
)

// Config is what a site or a test may set. The zero value is good.
type Config struct {
	// Environ is the environment to derive that of the Slurm commands from,
	// as NAME=VALUE; nil is this process's own.
	Environ []string
	// SubmitTimeout bounds one sbatch. Zero is 180 s: sbatch itself waits up
	// to about 2 minutes while a queue is full (MaxJobCount) before it gives
	// up, and killing it before that makes the answer unclear.
	SubmitTimeout time.Duration
	// QueryTimeout bounds every other command. Zero is 60 s.
	QueryTimeout time.Duration
	// Now is the clock; nil is time.Now. It only widens sacct's time window.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Environ == nil {
		c.Environ = os.Environ()
	}
	if c.SubmitTimeout == 0 {
		c.SubmitTimeout = 180 * time.Second
	}
	if c.QueryTimeout == 0 {
		c.QueryTimeout = 60 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// exitRefused is the exit code that sbatch is told to use for its own errors
// (SLURM_EXIT_ERROR in sbatch(1)), so that they are told from a wrapper's.
const exitRefused = 94

// scrubbed are the prefixes of variables that change what the Slurm commands
// do or print.
var scrubbed = []string{"SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_", "SACCTMGR_", "LC_", "LANG="}

// cleanEnv returns environ without them. SLURM_CONF and SLURM_CLUSTERS stay:
// they say which cluster the user means.
func cleanEnv(environ []string) []string {
	env := make([]string, 0, len(environ)+3)
	for _, e := range environ {
		if strings.HasPrefix(e, "SLURM_CONF=") || strings.HasPrefix(e, "SLURM_CLUSTERS=") || strings.HasPrefix(e, "SLURM_JWT=") || !hasAnyPrefix(e, scrubbed) {
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C")
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
