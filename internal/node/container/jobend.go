package container

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm/site"
)

// clockSlack is how long after the start of a job, by the clock of its node, the
// time that Slurm's controller calls its end is believed without asking: the clocks
// agree, then, and there was no long prolog.
const clockSlack = 10 * time.Second

// JobEnd is when Slurm will end a job, by the clock of this process (with a
// monotonic reading), or zero: SLURM_JOB_END_TIME (epoch seconds; sbatch(1), output
// environment) of the environment of its batch process. That and
// SLURM_JOB_START_TIME are the controller's. Where the start is not now, or 22.05
// has set neither, squeue is asked how much is left, for 5 s at most: a node's clock
// that is ahead costs no job its time.
func JobEnd(ctx context.Context, on jobs.Starter, getenv func(string) string, id string) time.Time {
	return jobEnd(ctx, on, getenv, id, time.Now)
}

func jobEnd(ctx context.Context, on jobs.Starter, getenv func(string) string, id string, now func() time.Time) time.Time {
	end, start := epoch(getenv("SLURM_JOB_END_TIME")), epoch(getenv("SLURM_JOB_START_TIME"))
	at := now()
	since := at.Sub(start)
	if !end.IsZero() && !start.IsZero() && since > -time.Second && since <= clockSlack {
		return at.Add(end.Sub(at))
	}
	if id != "" {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if asked := askJobEnd(ctx, on, id, now); !asked.IsZero() {
			return asked
		}
	}
	switch at = now(); {
	case end.IsZero():
		return time.Time{}
	case !start.IsZero() && since < 0: // a clock that is behind: there is no more than all of it
		return at.Add(end.Sub(start))
	}
	return at.Add(end.Sub(at)) // it may have begun so long ago
}

// epoch reads seconds of Unix time; zero is none.
func epoch(text string) time.Time {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return time.Unix(n, 0)
	}
	return time.Time{}
}

// AskJobEnd asks squeue how much is left: the limit of a job that runs may have
// been changed, or the job suspended. Zero is that it does not say.
func AskJobEnd(ctx context.Context, on jobs.Starter, id string) time.Time {
	return askJobEnd(ctx, on, id, time.Now)
}

func askJobEnd(ctx context.Context, on jobs.Starter, id string, now func() time.Time) time.Time {
	env := append(site.Environ(os.Environ()), "SLURM_TIME_FORMAT=standard")
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{"squeue", "-h", "-j", id, "-o", "%L"}, Env: env})
	if err != nil {
		return time.Time{}
	}
	left, ok := timeLeft(strings.TrimSpace(string(out)))
	if !ok {
		return time.Time{} // "UNLIMITED", "NOT_SET", "INVALID"
	}
	return now().Add(left)
}

// timeLeft reads what squeue prints of a time: [DAYS-][[HOURS:]MINUTES:]SECONDS.
func timeLeft(text string) (time.Duration, bool) {
	days, rest, has := strings.Cut(text, "-")
	if !has {
		days, rest = "0", text
	}
	total, err := strconv.ParseUint(days, 10, 16)
	parts := strings.Split(rest, ":")
	if err != nil || len(parts) > 3 {
		return 0, false
	}
	hours := total * 24
	var seconds uint64
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return 0, false
		}
		seconds = seconds*60 + n
	}
	return time.Duration(hours)*time.Hour + time.Duration(seconds)*time.Second, true
}
