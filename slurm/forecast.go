package slurm

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/slurm/site"
)

// mostTrials bounds what is asked for one forecast: each makes slurmctld plan.
const mostTrials = 5

// forecastName is the name of a job that is only tried, so that its own singleton
// does not hold it back.
const forecastName = "berth-forecast"

// trial is a way to ask for a job, as options over those of its script.
type trial struct {
	what    string
	options []string
}

// Forecast asks sbatch --test-only, which validates a job and estimates when it
// would start, and submits nothing (sbatch(1)).
func (s *Scheduler) Forecast(ctx context.Context, st jobs.Status, script string, r jobs.Resources, o jobs.SlurmOptions) ([]jobs.Forecast, error) {
	name, _, _ := strings.Cut(st.Reason, ",")
	why, known := reasonOf(name)
	switch name {
	case "Dependency", "DependencyNeverSatisfied", "BeginTime", "Prolog", "Cleaning", "FedJobLock", "JobArrayTaskLimit":
		return nil, nil
	}
	if st.NativeState != "PENDING" || known && strings.Contains(why.help, "scontrol release") || name == "JobHeldAdmin" {
		return nil, nil
	}
	others, err := s.others(ctx, r, o)
	if err != nil {
		return nil, err
	}
	var out []jobs.Forecast
	for _, t := range trials(r, others) {
		f := jobs.Forecast{What: t.what}
		if f.Start, f.Trouble, err = s.tryOut(ctx, script, t.options); err != nil {
			return out, err
		}
		out = append(out, f)
	}
	return out, nil
}

// trials are the ways that are worth trying: less time, less memory, elsewhere.
func trials(r jobs.Resources, others []string) []trial {
	list := []trial{{"as it is", nil}}
	add := func(what string, options ...string) { list = append(list, trial{what, options}) }
	if half := (r.Time / 2).Round(time.Minute); half >= 2*time.Minute {
		add("with half the time, "+half.String(), "--time="+Minutes(half))
	}
	if half := r.Memory / 2; half >= 128*jobs.MiB {
		half = jobs.Bytes(half.MiB()) * jobs.MiB
		add("with half the memory, "+half.String(), "--mem="+strconv.FormatInt(half.MiB(), 10)+"M")
	}
	for _, p := range others {
		add("in partition "+p, "--partition="+p)
	}
	return list[:min(len(list), mostTrials)]
}

// others are the partitions beside the job's own that take everybody's jobs of
// this length.
func (s *Scheduler) others(ctx context.Context, r jobs.Resources, o jobs.SlurmOptions) (names []string, err error) {
	text, err := s.cachedQuery(ctx, partitionsFile, whole, "scontrol", "show", "partition", "-o")
	if err != nil {
		return nil, err
	}
	open := func(v string, mine string) bool {
		return v == "" || v == "ALL" || mine != "" && slices.Contains(strings.Split(v, ","), mine)
	}
	for _, p := range site.Partitions(text) {
		name := p["PartitionName"]
		own := slices.Contains(strings.Split(o.Partition, ","), name) || o.Partition == "" && p["Default"] == "YES"
		limit, bounded := site.Limit(p["MaxTime"])
		if own || p["State"] != "UP" || p["RootOnly"] == "YES" || p["ReqResv"] == "YES" ||
			!open(p["AllowGroups"], "") || !open(p["AllowAccounts"], o.Account) || !open(p["AllowQos"], o.QOS) ||
			bounded && r.Time > limit {
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

var startPattern = pattern.Lazy(`to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)`)

// tryOut is one trial: when the job would start, or why it would not.
func (s *Scheduler) tryOut(ctx context.Context, script string, options []string) (time.Time, string, error) {
	if err := s.share().turn(ctx); err != nil {
		return time.Time{}, "", err
	}
	argv := append([]string{"sbatch", "--test-only", "--job-name=" + forecastName}, options...)
	out, err := s.command(ctx, s.cfg.QueryTimeout, []string{"TZ=UTC"}, append(argv, script)...)
	if err != nil {
		return time.Time{}, "", s.infra("sbatch", err)
	}
	if m := startPattern().FindStringSubmatch(out.stderr + out.stdout); m != nil {
		return parseTime(m[1]), "", nil
	}
	if out.notThere() || containsAny(out.stderr, controllerDown) {
		return time.Time{}, "", s.withDownHint(out)
	}
	said := lastLines(out.stderr, 1)
	if said == "" {
		return time.Time{}, "", errors.New("sbatch --test-only said nothing")
	}
	return time.Time{}, strings.TrimPrefix(said, "allocation failure: "), nil
}
