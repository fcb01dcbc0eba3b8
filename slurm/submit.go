package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// opaque is what a handle carries for this package.
type opaque struct {
	// Since is before the submission, in seconds of Unix time; it bounds
	// sacct's search.
	Since int64 `json:"since,omitempty"`
}

// sinceSlack is how long before the submission Since is, for clocks that disagree.
const sinceSlack = time.Hour

// Submit runs sbatch on the script. sbatch may wait inside for a full queue,
// so this takes up to [Config.SubmitTimeout].
//
// The kinds of its errors: rejected, again (a limit on submissions), config
// and infra mean that Slurm has nothing; unclear that it may have the job.
// "Connection refused" is infra and not unclear: the request was never sent.
func (s *Scheduler) Submit(ctx context.Context, l jobs.Launch, scriptPath string) (jobs.Handle, error) {
	since := s.cfg.Now().Add(-sinceSlack).Unix()
	out, err := s.command(ctx, s.cfg.SubmitTimeout, []string{"SLURM_EXIT_ERROR=" + exitRefusedText}, "sbatch", "--parsable", scriptPath)
	s.share().changed()
	var start *startError
	if errors.As(err, &start) {
		return jobs.Handle{}, s.infra("sbatch", err)
	}
	// An id counts whatever the exit code: a site's wrapper has one of its own.
	if id, cluster, ok := parseSubmitted(out.stdout); ok {
		h := s.handle(l.Name, id, cluster, since)
		h.Elements = l.Elements
		return h, nil
	}
	if err != nil {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindUnclear, Msg: "sbatch did not end by itself", Err: err, Hint: unclearHint}
	}
	return jobs.Handle{}, s.refusal(ctx, l, out)
}

const unclearHint = "Slurm may have the job; berth looks for it by name before it submits again"

func (s *Scheduler) handle(name, id, cluster string, since int64) jobs.Handle {
	o, err := json.Marshal(opaque{Since: since})
	if err != nil {
		o = nil
	}
	return jobs.Handle{Version: 1, Scheduler: jobs.SchedulerSlurm, NativeID: id, Name: name, Cluster: cluster, Opaque: o}
}

var submittedPattern = pattern.Lazy(`^([0-9]+)(?:;(\S+))?$`)

// parseSubmitted finds what --parsable prints, "ID" or "ID;CLUSTER", between
// the banners that sites' wrappers add; the last such line counts.
func parseSubmitted(stdout string) (id, cluster string, ok bool) {
	for line := range strings.SplitSeq(stdout, "\n") {
		if m := submittedPattern().FindStringSubmatch(strings.TrimRight(line, " \t\r")); m != nil && strings.Trim(m[1], "0") != "" {
			id, cluster, ok = m[1], m[2], true
		}
	}
	return id, cluster, ok
}
