//go:build faults

package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/jobs"
)

var (
	theSeed    = flag.Uint64("seed", 6, "of the schedule")
	theMinutes = flag.Float64("minutes", 3, "how long things break")
)

// TestChaos breaks one thing after the other, as its seed says, while clients
// submit jobs; then all is repaired, every job ends, and the invariants hold.
func TestChaos(t *testing.T) {
	begin(t)
	seed := *theSeed
	length := time.Duration(*theMinutes * float64(time.Minute))
	faults := schedule(seed, length)
	if strictSite {
		faults = slices.DeleteFunc(faults, func(f fault) bool { return f.name == "kill slurmdbd" || f.name == "fill state directory" })
	}
	t.Logf("again with: scripts/chaos --seed %d --minutes %g", seed, *theMinutes)
	ok(t, "login", "alice", "berth overlay create --driver fuse --image "+image+" copied; berth overlay create --driver ext3 --size 64MiB --image "+image+" placed")
	t.Cleanup(func() { heal(t) })
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	c := &crowd{wishes: map[string]wish{}}
	var clients, breaks sync.WaitGroup
	for n := range uint64(3) {
		clients.Go(func() { c.client(ctx, seed, n) })
	}
	clients.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, 10*time.Second) {
			operate("DRAIN")
		}
	})
	had, void := map[string]int{}, map[string]int{}
	var mu sync.Mutex
	for _, f := range faults {
		pause(ctx, time.Until(began.Add(f.at)))
		breaks.Go(func() {
			a := kinds[f.name].do(f)
			mu.Lock()
			had[f.name]++
			if a.code != 0 {
				void[f.name]++
			}
			if f.name == "kill slurmctld" {
				c.forgot = append(c.forgot, memory{killed: time.Now(), saved: writtenDown()})
			}
			mu.Unlock()
			t.Logf("%s%s", f, map[bool]string{true: fmt.Sprintf(": code %d %s", a.code, a.err)}[a.code != 0])
			if undo := kinds[f.name].undo; undo != nil {
				time.Sleep(f.last)
				if a := undo(f); a.code != 0 {
					t.Logf("%s could not be undone yet: %s", f.name, a.err)
				}
			}
		})
	}
	clients.Wait()
	breaks.Wait()
	on("login", "root", "rm -f /mnt/state/filler; pkill -CONT -u alice berth")
	for _, n := range nodes {
		on(n, "root", "pkill -CONT -u alice")
	}
	heal(t)
	broken := time.Since(began)
	alone := finish(t, c)
	recs := invariants(t)
	c.report(t, seed, recs, had, void, broken, time.Since(began), alone)
}

// finish waits until all acknowledged jobs have ended. No one looks: that is
// the reapers' work. Should some be open when that has had its time, then
// someone looks, and what that was needed for is a failure, but for what
// [needsLook] names. It returns how many did without.
func finish(t *testing.T, c *crowd) (alone int) {
	t.Helper()
	open := func() map[string]*jobs.Record {
		recs := ledger(t)
		alone = 0
		maps.DeleteFunc(recs, func(id string, r *jobs.Record) bool {
			_, is := acked.Load(id)
			final := jobs.StateOf(r).Final()
			if is && final {
				alone++
			}
			return !is || final
		})
		return recs
	}
	left := open()
	for until := time.Now().Add(patience); time.Now().Before(until) && (len(left) > 0 || alone == 0); time.Sleep(3 * time.Second) {
		operate("DOWN|DRAIN")
		left = open()
	}
	did := alone
	for id, r := range left {
		why := needsLook(r, c.forgot)
		said := fmt.Sprintf("job %s (%s) has not ended in %s without anybody looking%s:\n%s%s", id, c.wishes[id].kind, patience, why, tell(r),
			on("login", "alice", "cd "+state+"/jobs/*/*"+id+"/attempts; ls -lR --time-style=full-iso .; tail -n 20 $(find . -name reaper.log) /dev/null; squeue -a -t all -o '%i %j %T %r %S' | grep -E 'JOBID|reap|'"+id).out)
		if why == "" {
			t.Error(said)
		} else {
			t.Log(said)
		}
	}
	for until := time.Now().Add(patience); len(left) > 0 && time.Now().Before(until); time.Sleep(5 * time.Second) {
		sh("berth ps >/dev/null")
		left = open()
	}
	return did
}

// needsLook is why nothing of Slurm's can be left to end a job: "" is no reason.
// Its reaper could not be submitted, which people are told, or slurmctld was
// killed before it had written down that it was.
func needsLook(r *jobs.Record, forgot []memory) string {
	a := r.Current()
	if a.Unfollowed != nil {
		return ", as is said where people see it: " + a.Unfollowed.Reason
	}
	for _, m := range forgot {
		for _, s := range []*jobs.Submitted{a.Submitted, a.Reaper} {
			if s != nil && m.killed.After(s.Time) && (m.killed.Before(s.Time.Add(writesDown)) || m.saved.Before(s.Time.Add(time.Second))) {
				return ", as slurmctld was killed " + m.killed.Sub(s.Time).String() + " after " + s.Handle.Name + " was submitted"
			}
		}
	}
	return ""
}

// writesDown is how long slurmctld takes to write down what it has heard, with
// some time for what it hears while it writes.
const writesDown = 8 * time.Second

// memory is what slurmctld knew when it was killed: what had been written down
// by then, which on a slow machine may be older than [writesDown].
type memory struct{ killed, saved time.Time }

// writtenDown is when slurmctld has last done that; now, where it cannot be told.
func writtenDown() time.Time {
	var s int64
	if _, err := fmt.Sscan(on("ctl", "root", "stat -c %Y /var/spool/slurmctld/job_state").out, &s); err != nil {
		return time.Now()
	}
	return time.Unix(s, 0)
}

// report asserts that the counts add up, and writes the table.
func (c *crowd) report(t *testing.T, seed uint64, recs map[string]*jobs.Record, had, void map[string]int, broken, all time.Duration, alone int) {
	t.Helper()
	states, classes := map[string]map[jobs.State]int{}, map[jobs.Class]int{}
	total, attempts, unasked, guests := 0, 0, 0, 0
	for id, r := range recs {
		attempts += len(r.Attempts)
		for i := range r.Attempts {
			if d := r.Attempts[i].Decision; d != nil && d.Verb == jobs.VerbRetry {
				classes[d.Class]++
			}
		}
		w, known := c.wishes[id]
		if !known {
			unasked++
			continue
		}
		state := jobs.StateOf(r)
		if states[w.kind] == nil {
			states[w.kind] = map[jobs.State]int{}
		}
		states[w.kind][state]++
		total++
		switch {
		case state == w.want, !state.Final():
		case state == jobs.StateCancelled && r.Cancel == nil: // scancel
		case w.want == jobs.StateCancelled && r.Cancel == nil: // it could not be wished
		case guestKilled(r): // the fault "kill guest" is told apart from a task that does it by nothing
			guests++
		case state == jobs.StateError || state == jobs.StateLost: // its credits are used up
			t.Logf("job %s (%s):\n%s", id, w.kind, tell(r))
		default:
			t.Errorf("job %s (%s) ended as %s, want %s:\n%s", id, w.kind, state, w.want, tell(r))
		}
	}
	if most := had["kill guest"] - void["kill guest"]; guests > most {
		t.Errorf("%d jobs say that their guest was killed, and %d guests were", guests, most)
	}
	if total != len(c.wishes) {
		t.Errorf("%d jobs were acknowledged, and %d are counted", len(c.wishes), total)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, seed %d: %d faults in %.0f s, all over after %.0f s\n\n", time.Now().UTC().Format(time.DateOnly), seed, sum(had), broken.Seconds(), all.Seconds())
	fmt.Fprintf(&b, "| what | |\n|---|---|\n| jobs acknowledged | %d |\n| ... and ended | %d, of them %d with nobody looking |\n| ... lost, or accepted twice | 0 |\n", len(c.wishes), total, alone)
	fmt.Fprintf(&b, "| submissions not acknowledged | %d, of them %d refused with an error; %d have a record |\n", c.unclear.Load(), c.refused.Load(), unasked)
	fmt.Fprintf(&b, "| attempts | %d |\n| tried again for | %s |\n", attempts, list(classes))
	for _, kind := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(&b, "| %s | %s |\n", kind, list(states[kind]))
	}
	b.WriteString("\n| fault | times | of them nothing to break |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(had)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", name, had[name], void[name])
	}
	t.Logf("again with: scripts/chaos --seed %d --minutes %g\n%s", seed, *theMinutes, b.String())
	if out := os.Getenv("BERTH_CHAOS_TABLE"); out != "" && !t.Failed() {
		if err := os.WriteFile(out, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// guestKilled tells whether a job ended because its guest was killed: that is the
// task's failure, and is not tried again.
func guestKilled(r *jobs.Record) bool {
	x := r.Current().Exit
	return x != nil && x.State == jobs.StateFailed && strings.HasPrefix(x.Reason, "berth's own process in the container was killed (signal 9)")
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// list is a map of counts in words, in a fixed order.
func list[K ~string](m map[K]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(out, ", ")
}
