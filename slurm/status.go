package slurm

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
)

// maxListed is how many ids or names stand in one command line. One argument
// may have 128 KiB (execve(2)); an id has at most 10 digits and a name 60
// characters.
const (
	maxListedIDs   = 8000
	maxListedNames = 1000
)

// Status asks squeue once for all of the user's jobs, and only when some are
// not among them, sacct once for these. Slurm forgets an ended job in squeue
// after MinJobAge (300 s by default); where there is no accounting, the job is
// then missing from the answer.
//
// A job counts only when both its id and its name are right. When the
// accounting alone does not answer, what the queue said comes with the error.
func (s *Scheduler) Status(ctx context.Context, handles []jobs.Handle) (map[string]jobs.Status, error) {
	answer := map[string]jobs.Status{}
	for _, cluster := range clusters(handles) {
		wanted := onCluster(handles, cluster)
		want := recent
		switch polls, looks, urgent := jobs.Patience(ctx); {
		case polls:
			want = usual
		case looks:
			want = look
		case urgent:
			want = after
		}
		rows, asked, err := s.queue(ctx, cluster, nil, want)
		if err != nil {
			return nil, err
		}
		gone := pick(answer, wanted, rows)
		if (want == usual || want == look) && s.share() != nil && slices.ContainsFunc(gone, func(h jobs.Handle) bool { return newer(h, asked) }) {
			if rows, _, err = s.queue(ctx, cluster, nil, recent); err != nil {
				return answer, err
			}
			gone = pick(answer, wanted, rows)
		}
		ended := cancelled(answer, wanted)
		// What became of each element stands in its own records.
		several := func(h jobs.Handle) bool { return h.Elements > 0 }
		gone, ended = slices.DeleteFunc(gone, several), slices.DeleteFunc(ended, several)
		if len(gone)+len(ended) == 0 {
			continue
		}
		if rows, err = s.accounted(ctx, cluster, append(ended, gone...)); err != nil {
			if len(gone) == 0 {
				continue // that it was cancelled is known, and only not by whom
			}
			return answer, err
		}
		s.name(ctx, rows)
		// The accounting keeps calling a job pending or running that the
		// controller has lost; the queue, which does not have it, is right.
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.status.State.Final() && r.status.State != "" })
		pick(answer, ended, rows)
		pick(answer, gone, slices.DeleteFunc(rows, closedRow))
	}
	return answer, nil
}

// newer tells whether a job may have been submitted after an answer that does not have
// it, perhaps by another host whose clock is another one.
func newer(h jobs.Handle, asked time.Time) bool {
	const slack = time.Minute
	var o opaque
	if json.Unmarshal(h.Opaque, &o) != nil || o.Since == 0 {
		return true
	}
	return time.Unix(o.Since, 0).Add(sinceSlack + slack).After(asked)
}

// closedRow tells that the accounting alone calls a job cancelled, and names no
// user who did it: slurmctld came back without the job, and slurmdbd has closed
// its row (tried with 24.11). The user of scancel is named, unless slurmctld was
// restarted in the minutes after: until then the queue has the job, and the
// reaper asks the queue.
func closedRow(r row) bool {
	reason, ok := reasonOf(r.status.Reason)
	return r.status.State == jobs.StateCancelled && r.status.By == "" && (!ok || !reason.never)
}

// cancelled are those of the wanted jobs that the queue calls so: only the
// accounting says by whom.
func cancelled(answer map[string]jobs.Status, wanted []jobs.Handle) (out []jobs.Handle) {
	for _, h := range wanted {
		if answer[h.Name].State == jobs.StateCancelled {
			out = append(out, h)
		}
	}
	return out
}

// pick takes the rows of the wanted jobs into the answer and returns the jobs
// that have none.
func pick(answer map[string]jobs.Status, wanted []jobs.Handle, rows []row) (missing []jobs.Handle) {
	byID := make(map[string]row, len(rows))
	for _, r := range rows {
		byID[r.id+" "+r.name] = r
	}
	for _, h := range wanted {
		r, ok := byID[h.NativeID+" "+h.Name]
		if h.Elements > 0 {
			r, ok = together(rows, h.Name)
		}
		if ok {
			answer[h.Name] = r.status
		} else {
			missing = append(missing, h)
		}
	}
	return missing
}

// together is the row that speaks for all elements of a name: one that runs, else one
// that waits, else one that has ended. Each element that runs has an id of its own, and
// all that wait have one row.
func together(rows []row, name string) (best row, ok bool) {
	rank := func(r row) int {
		switch {
		case r.status.State == jobs.StateRunning:
			return 3
		case !r.status.State.Final():
			return 2
		}
		return 1
	}
	most, left := 0, 0
	for _, r := range rows {
		if r.name != name {
			continue
		}
		n := rank(r)
		if n > 1 {
			left++
		}
		if n > most {
			best, most = r, n
		}
	}
	best.status.Elements = left
	return best, most > 0
}

// Find looks for names in the queue, and in the accounting for those that
// have left it. When one name was submitted twice, the job that is not over
// counts, else the last.
func (s *Scheduler) Find(ctx context.Context, names []string) (map[string]jobs.Handle, error) {
	found := map[string]jobs.Handle{}
	if len(names) == 0 {
		return found, nil
	}
	rows, _, err := s.queue(ctx, "", names, after)
	if err != nil {
		return nil, err
	}
	var left []string
	s.match(found, names, slices.DeleteFunc(slices.Clone(rows), refusedRow))
	for _, n := range names {
		if _, ok := found[n]; !ok {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		return found, nil
	}
	on, err := s.accounting(ctx)
	if err != nil || !on {
		return found, err
	}
	for part := range slices.Chunk(left, maxListedNames) {
		out, err := s.query(ctx, "sacct", "-X", "-P", "-n", "-S", s.window(nil), "--name="+strings.Join(part, ","), "-o", acctFormat)
		if err != nil {
			return nil, err
		}
		s.match(found, part, slices.DeleteFunc(parseAcct(out), refusedRow))
	}
	return found, nil
}

// refusedRow tells a submission that Slurm refused and yet kept: it has an id and
// is FAILED, and never had a node, nor a start, or for a reason that lets none begin
// (seen with 24.11, in squeue and sacct, for a request that no node can satisfy).
func refusedRow(r row) bool {
	return r.status.NativeState == "FAILED" && r.status.Node == "" && (r.status.Start.IsZero() || r.status.Class == jobs.ClassPolicy)
}

func (s *Scheduler) match(found map[string]jobs.Handle, names []string, rows []row) {
	live := map[string]bool{}
	for _, r := range rows {
		if !slices.Contains(names, r.name) || live[r.name] {
			continue
		}
		live[r.name] = r.status.State != "" && !r.status.State.Final()
		found[r.name] = s.handle(r.name, r.id, "", s.cfg.Now().Add(-findWindow).Unix())
	}
}

// findWindow is how far back an attempt is looked for by name: an unclear
// submission is resolved soon after, and sacct reads the whole window.
const findWindow = 7 * 24 * time.Hour

// statusWindow bounds the search of a job whose submission time is unknown.
const statusWindow = 90 * 24 * time.Hour

// queue asks squeue for the user's jobs in all states, or takes an answer that
// is new enough, and returns when it was asked for. names narrow it down where it is
// asked for this process alone.
func (s *Scheduler) queue(ctx context.Context, cluster string, names []string, want fresh) ([]row, time.Time, error) {
	argv := []string{"squeue", "--me", "-h", "-t", "all", "-O", queueFormat}
	if cluster != "" {
		argv = append(argv, "-M", cluster)
	}
	if sh := s.share(); sh != nil {
		text, asked, err := sh.squeue(ctx, cluster, want, func(ctx context.Context) (string, error) { return s.askNow(ctx, argv...) })
		if err != nil {
			return nil, asked, err
		}
		return s.read(cluster, text, asked), asked, nil
	}
	if len(names) > 0 && len(names) <= maxListedNames {
		argv = append(argv, "-n", strings.Join(names, ","))
	}
	asked := s.cfg.Now()
	out, err := s.query(ctx, argv...)
	if err != nil {
		return nil, asked, err
	}
	return parseQueue(out), asked, nil
}

// read parses an answer that others may have asked for, once.
func (s *Scheduler) read(cluster, text string, asked time.Time) []row {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.parsed[cluster]; ok && p.asked.Equal(asked) {
		return p.rows
	}
	rows := parseQueue(text)
	for i := range rows {
		rows[i].status.AsOf = asked
	}
	s.parsed[cluster] = parsed{asked, rows}
	return rows
}

// accounted asks sacct for jobs by id; it has no answer where there is no
// accounting.
func (s *Scheduler) accounted(ctx context.Context, cluster string, handles []jobs.Handle) ([]row, error) {
	on, err := s.accounting(ctx)
	if err != nil || !on {
		return nil, err
	}
	var rows []row
	for part := range slices.Chunk(handles, maxListedIDs) {
		ids := make([]string, len(part))
		for i, h := range part {
			ids[i] = h.NativeID
		}
		argv := []string{"sacct", "-X", "-P", "-n", "-S", s.window(part), "-j", strings.Join(ids, ","), "-o", acctFormat}
		if cluster != "" {
			argv = append(argv, "-M", cluster)
		}
		out, err := s.query(ctx, argv...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, parseAcct(out)...)
	}
	return rows, nil
}

// window is sacct's -S for these jobs: without it sacct looks no further back
// than last midnight. It is in UTC, as the queries are.
func (s *Scheduler) window(handles []jobs.Handle) string {
	now := s.cfg.Now()
	since := now.Add(-findWindow)
	for _, h := range handles {
		var o opaque
		submitted := now.Add(-statusWindow)
		if err := json.Unmarshal(h.Opaque, &o); err == nil && o.Since > 0 {
			// A day for clocks that disagree.
			submitted = time.Unix(o.Since, 0).Add(-24 * time.Hour)
		}
		if submitted.Before(since) {
			since = submitted
		}
	}
	return since.UTC().Format("2006-01-02T15:04:05")
}

func clusters(handles []jobs.Handle) []string {
	var names []string
	for _, h := range handles {
		if !slices.Contains(names, h.Cluster) {
			names = append(names, h.Cluster)
		}
	}
	return names
}

// onCluster returns the handles of one cluster that have a real id.
func onCluster(handles []jobs.Handle, cluster string) []jobs.Handle {
	var on []jobs.Handle
	for _, h := range handles {
		if h.Cluster == cluster && isID(h.NativeID) {
			if n, err := strconv.ParseUint(h.NativeID, 10, 64); err == nil && n > 0 {
				on = append(on, h)
			}
		}
	}
	return on
}
