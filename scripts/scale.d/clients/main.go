// Command clients has several berth processes at once work on one ledger with
// many jobs, and says how long their verbs took, how much memory they had, and
// whether anything was lost. scripts/scale calls it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

func main() {
	berth := flag.String("berth", "dist/berth", "the program")
	dir := flag.String("dir", "", "an empty directory for the ledger")
	n := flag.Int("jobs", 10000, "jobs that have ended, in the ledger from the beginning")
	clients := flag.Int("clients", 8, "clients at once")
	last := flag.Duration("for", 5*time.Minute, "how long they work")
	flag.Parse()
	if err := run(*berth, *dir, *n, *clients, *last); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(berth, dir string, n, clients int, last time.Duration) error {
	berth, err := filepath.Abs(berth)
	if err != nil {
		return err
	}
	m := &machine{berth: berth, dir: dir, took: map[string][]time.Duration{}, cpu: map[string][]time.Duration{}, memory: map[string]int64{}}
	st, err := store.Open(filepath.Join(dir, "home"))
	if err != nil {
		return err
	}
	began := time.Now()
	filled, err := fill(st, n)
	if err != nil {
		return err
	}
	say("%d jobs were recorded in %s", n, time.Since(began).Round(time.Second))
	// What has changed within the last minute is read again each time, as the
	// newest jobs of a user are; all at once they are not.
	time.Sleep(61 * time.Second)
	_, _ = m.verb("first ps", "ps", "--all")
	for range 5 {
		_, _ = m.verb("ps, alone", "ps")
		_, _ = m.verb("ps --all, alone", "ps", "--all")
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[string]jobs.State{}
	end := time.Now().Add(last)
	for c := range clients {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				command, want := "true", jobs.StateCompleted
				if (c+i)%4 == 0 {
					command, want = "sleep 300", jobs.StateCancelled
				}
				id, err := m.verb("submit", "submit", "--scheduler", "local", "--backend", "local", "--", command)
				if err != nil {
					continue // it is in m.errs
				}
				mu.Lock()
				acknowledged[id] = want
				mu.Unlock()
				_, _ = m.verb("ps", "ps")
				if want == jobs.StateCancelled {
					_, _ = m.verb("cancel", "cancel", id)
				}
				_, _ = m.verb("status", "status", id)
				if _, err := m.verb("wait", "wait", id); err != nil && want == jobs.StateCompleted {
					say("wait %s: %v", id, err)
				}
				_, _ = m.verb("ps --all", "ps", "--all")
			}
		})
	}
	wg.Wait()
	if _, err := m.verb("follow", "follow"); err != nil {
		return err
	}
	m.print()
	return m.account(st, filled, acknowledged)
}

// account looks whether all is there that was acknowledged, and as it should be.
func (m *machine) account(st *store.Store, filled map[string]bool, acknowledged map[string]jobs.State) error {
	recs, err := st.List()
	if err != nil {
		return err
	}
	lost, wrong, unknown := len(filled)+len(acknowledged), 0, 0
	for _, r := range recs {
		want, ours := acknowledged[jobs.Short(r.Spec.ID)]
		switch {
		case ours && jobs.StateOf(r) != want:
			say("job %s is %s and not %s", r.Spec.ID, jobs.StateOf(r), want)
			wrong++
			lost--
		case ours || filled[r.Spec.ID]:
			lost--
		default:
			unknown++
		}
	}
	fmt.Printf("\n%d jobs in the ledger: %d from the beginning, %d submitted by the clients. "+
		"Lost: %d, in a wrong state: %d, unknown to all: %d, verbs that failed: %d\n",
		len(recs), len(filled), len(acknowledged), lost, wrong, unknown, len(m.errs))
	if lost+wrong+unknown+len(m.errs) > 0 {
		return errors.Join(append(m.errs, errors.New("that does not add up"))...)
	}
	return nil
}

// machine runs berth and keeps what that cost.
type machine struct {
	berth, dir string
	mu         sync.Mutex
	order      []string
	took       map[string][]time.Duration
	cpu        map[string][]time.Duration
	memory     map[string]int64 // the most, in bytes
	errs       []error
}

// verb runs one and returns its output. Its exit code matters, but for wait of
// a job that was cancelled.
func (m *machine) verb(what string, args ...string) (string, error) {
	cmd := exec.Command(m.berth, args...)
	cmd.Env = append(os.Environ(), "BERTH_HOME="+filepath.Join(m.dir, "home"), "XDG_CACHE_HOME="+filepath.Join(m.dir, "cache"),
		"XDG_CONFIG_HOME="+filepath.Join(m.dir, "config"))
	var errs strings.Builder
	cmd.Stderr = &errs
	began := time.Now()
	out, err := cmd.Output()
	took := time.Since(began)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took[what] == nil {
		m.order = append(m.order, what)
	}
	m.took[what] = append(m.took[what], took)
	m.cpu[what] = append(m.cpu[what], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.memory[what] = max(m.memory[what], u.Maxrss*1024)
	}
	if code := cmd.ProcessState.ExitCode(); err != nil && (what != "wait" || code != jobs.CodeInterrupted) {
		err = fmt.Errorf("berth %s: %w: %s", strings.Join(args, " "), err, errs.String())
		m.errs = append(m.errs, err)
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

func (m *machine) print() {
	fmt.Println("| verb | times | median | 95 % | longest | CPU time, median | most memory |\n|---|---|---|---|---|---|---|")
	at := func(all []time.Duration, part float64) time.Duration {
		slices.Sort(all)
		return all[int(part*float64(len(all)-1))].Round(time.Millisecond)
	}
	for _, what := range m.order {
		all := m.took[what]
		fmt.Printf("| %s | %d | %s | %s | %s | %s | %d MiB |\n", what, len(all),
			at(all, 0.5), at(all, 0.95), at(all, 1), at(m.cpu[what], 0.5), m.memory[what]>>20)
	}
}

// fill records jobs that have ended.
func fill(st *store.Store, n int) (map[string]bool, error) {
	filled := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	for w := range 32 { // a file system commits concurrent syncs together
		wg.Go(func() {
			for i := w; i < n; i += 32 {
				id, err := record(st, i)
				mu.Lock()
				filled[id] = true
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return filled, failed
}

func record(st *store.Store, i int) (string, error) {
	id, err := ids.New()
	if err != nil {
		return "", err
	}
	aid, err := ids.New()
	if err != nil {
		return "", err
	}
	host, _ := os.Hostname()
	now := time.Now().UTC()
	spec := jobs.Spec{
		ID: id, Name: fmt.Sprintf("Fix the parser %d", i), Slug: "fix-the-parser",
		Command: jobs.Command{Shell: "make test"}, Retry: jobs.DefaultRetry(), Created: now, User: "alice", Host: host,
		Notes: []string{"backend local: no containment"},
		Place: jobs.Place{
			Resources: jobs.Resources{CPUs: 4, Memory: 8 * jobs.GiB, Time: time.Hour},
			Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal, Level: jobs.LevelNone, Env: []string{"A=1"},
		},
	}
	info := jobs.AttemptInfo{Version: 1, ID: aid, Number: 1, Name: jobs.JobName(spec.Slug, aid), Created: now}
	script := func(dir string) (string, error) { return "#!/bin/bash\nexec true " + dir + "\n", nil }
	rec, err := st.Create(store.New{Spec: spec, Attempt: info, Script: script})
	if err != nil {
		return id, err
	}
	dir := rec.Current().Dir
	handle := jobs.Handle{Version: 1, Scheduler: jobs.SchedulerLocal, NativeID: "1", Name: info.Name}
	_, e1 := store.SetSubmitted(dir, jobs.Submitted{Version: 1, Handle: handle, Time: now})
	_, e2 := store.SetClaim(dir, jobs.Claim{Version: 1, Attempt: aid, Host: host, PID: 1, Time: now})
	e3 := store.Beat(dir, 1, now)
	_, e4 := store.SetDecision(dir, jobs.Decision{Version: 1, Attempt: aid, Verb: jobs.VerbAccept,
		State: jobs.StateCompleted, Reason: "it succeeded", Time: now})
	_, e5 := store.SetExit(dir, jobs.ExitRecord{Version: 1, Attempt: aid, State: jobs.StateCompleted,
		Exit: jobs.Exit{Started: true}, Started: now, Ended: now, Node: host})
	return id, errors.Join(e1, e2, e3, e4, e5)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "scale: "+format+"\n", args...) }
