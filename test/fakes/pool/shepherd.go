//go:build linux

package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
)

// pace is how often a shepherd looks around.
const pace = 20 * time.Millisecond

// shepherd looks after one ticket, from when it is made until it is over.
type shepherd struct {
	yard yard
	site Site
	t    *ticket
	gone time.Time // since when there is no yard
}

func shepherdMain(y yard, id string) int {
	// Not ignored, which a job would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	// What a job leaves behind comes to this process, and is ended with it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "pool:", err)
		return 1
	}
	s := &shepherd{yard: y}
	var err error
	if s.site, err = y.site(); err == nil {
		s.t, err = y.load(id)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pool:", err)
		return 1
	}
	s.t.Shepherd, s.t.Start = os.Getpid(), lease.StartTime(os.Getpid())
	s.keep()
	for !s.t.over() {
		if s.wait() {
			s.job()
		}
	}
	return 0
}

// keep saves the ticket. Who breaks the yard for a while must not lose a state; the
// yard of a test that has ended takes its jobs with it.
func (s *shepherd) keep() {
	for s.yard.save(s.t) != nil {
		s.look()
		time.Sleep(pace)
	}
}

// look ends everything when the yard is gone for good.
func (s *shepherd) look() {
	if _, err := os.Stat(s.yard.dir(s.t.ID)); !errors.Is(err, fs.ErrNotExist) {
		s.gone = time.Time{}
	} else if s.gone.IsZero() {
		s.gone = time.Now()
	} else if time.Since(s.gone) > 5*time.Second {
		s.clear()
		os.Exit(1)
	}
}

// asked takes a wish.
func (s *shepherd) asked(what string) (by string, ok bool) {
	by, ok = s.yard.asked(s.t.ID, what)
	if ok {
		s.yard.done(s.t.ID, what)
	}
	return by, ok
}

func (s *shepherd) say(state, why string) {
	if s.t.State != state || s.t.Why != why {
		s.t.State, s.t.Why = state, why
		s.keep()
	}
}

// wait waits for the ticket's turn; false is that it is over before.
func (s *shepherd) wait() bool {
	for ; ; time.Sleep(pace) {
		s.look()
		if by, ok := s.asked(askEnd); ok {
			s.t.By = by
			s.say(ended, byPerson)
			return false
		}
		if _, ok := s.asked(askHold); ok {
			s.say(held, "by hand")
		}
		if _, ok := s.asked(askRelease); ok {
			s.say(queued, "")
		}
		s.yard.done(s.t.ID, askAgain)
		if s.t.State == held {
			continue
		}
		if left := time.Until(s.t.Made.Add(s.t.Delay)); s.t.Delay > 0 && left > 0 {
			s.say(queued, "not before "+s.t.Made.Add(s.t.Delay).Format(time.RFC3339))
			continue
		}
		if first := s.behind(); first != "" {
			s.say(queued, "behind "+first)
			continue
		}
		return true
	}
}

// behind is a ticket that this one waits for, or "".
func (s *shepherd) behind() string {
	for _, id := range s.t.Behind {
		t, err := s.yard.load(id)
		if err == nil && t.stands() || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return id
		}
	}
	return ""
}

// end is that a job is being ended.
type end struct {
	why, by string
	again   bool
	kill    time.Time
}

// job runs the script once. Afterwards the ticket is over, or waits again.
func (s *shepherd) job() {
	t := s.t
	i := slices.IndexFunc(s.site.Nodes, func(n string) bool { return !slices.Contains(t.Avoid, n) })
	t.Node, t.Began, t.Stops, t.State, t.Why = s.site.Nodes[i], time.Now().UTC(), time.Time{}, runs, ""
	if t.Limit > 0 {
		t.Stops = t.Began.Add(t.Limit)
	}
	s.keep()
	batch, err := s.start()
	if err != nil {
		t.Code = 1
		s.say(finished, err.Error())
		return
	}
	var stop *end
	warned := t.Warn == 0
	for ; ; time.Sleep(pace) {
		s.look()
		if status, over := reap(batch); over {
			s.clear()
			s.conclude(status, stop)
			return
		}
		now := time.Now()
		if !warned && !t.Stops.IsZero() && now.After(t.Stops.Add(-t.Warn)) {
			warned = true
			_ = unix.Kill(batch, unix.SIGUSR2)
		}
		if _, ok := s.asked(askStill); ok {
			s.all(unix.SIGSTOP)
			s.say(suspended, "")
		}
		if _, ok := s.asked(askOn); ok || stop != nil && t.State == suspended {
			s.all(unix.SIGCONT)
			s.say(runs, "")
		}
		if stop == nil {
			if by, ok := s.asked(askEnd); ok {
				stop = &end{why: byPerson, by: by}
			} else if _, ok := s.asked(askAgain); ok {
				stop = &end{why: byRoom, again: t.Rerun}
			} else if !t.Stops.IsZero() && now.After(t.Stops) {
				stop = &end{why: byLimit}
			}
			if stop != nil {
				stop.kill = now.Add(s.site.Grace)
				t.Ending = true
				s.keep()
				_ = unix.Kill(batch, unix.SIGTERM)
			}
		} else if now.After(stop.kill) {
			_ = unix.Kill(batch, unix.SIGKILL)
			stop.kill = now.Add(time.Hour)
		}
	}
}

// start starts the script, in a session of its own.
func (s *shepherd) start() (pid int, err error) {
	out, err := os.OpenFile(filepath.Join(s.t.Folder, s.t.Log), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	in, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	p, err := os.StartProcess("/bin/bash", []string{"bash", filepath.Join(s.yard.dir(s.t.ID), fileScript)}, &os.ProcAttr{
		Dir: s.t.Folder, Env: append(slices.Clone(s.site.Env), s.yard.variables(s.t)...), Files: []*os.File{in, out, out}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, err
	}
	pid = p.Pid
	return pid, p.Release() // [reap] waits for it
}

// reap takes away what has ended below this process, and says how the batch process
// has.
func reap(batch int) (status syscall.WaitStatus, over bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return status, over
		}
		if pid == batch {
			status, over = ws, true
		}
	}
}

// flock are the processes of the job. A job that it has submitted has a shepherd of
// its own, which comes to this process as everything else does, and is none of them.
func flock() (out []run.Proc) {
	apart := map[int]bool{}
	for _, p := range run.Below(os.Getpid()) { // parents first
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if apart[p.PPID] || strings.Contains(string(line), "\x00"+verbShepherd+"\x00") {
			apart[p.PID] = true
			continue
		}
		out = append(out, p)
	}
	return out
}

// all sends a signal to every process of the job.
func (s *shepherd) all(sig unix.Signal) {
	for _, p := range flock() {
		if !p.Zombie {
			_ = unix.Kill(p.PID, sig)
		}
	}
}

// clear kills all that is left of a job, and its steps.
func (s *shepherd) clear() {
	steps := filepath.Join(s.yard.dir(s.t.ID), dirSteps)
	list, _ := os.ReadDir(steps)
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		start, rerr := os.ReadFile(filepath.Join(steps, e.Name()))
		if err == nil && rerr == nil {
			run.KillSame(pid, func() bool { return lease.StartTime(pid) == string(start) })
		}
		_ = os.Remove(filepath.Join(steps, e.Name()))
	}
	for {
		left := flock()
		for _, p := range left {
			if !p.Zombie {
				run.KillSame(p.PID, func() bool { now, ok := run.ReadProc(p.PID); return ok && now.PPID == p.PPID })
			}
		}
		_, _ = reap(0)
		if len(left) == 0 {
			return
		}
		time.Sleep(pace / 4)
	}
}

// conclude says what has become of a job that has ended.
func (s *shepherd) conclude(status syscall.WaitStatus, stop *end) {
	t := s.t
	t.Ending, t.Code, t.Signal = false, status.ExitStatus(), 0
	if status.Signaled() {
		t.Code, t.Signal = 0, int(status.Signal())
	}
	switch {
	case stop != nil && stop.again:
		t.Round++
		t.Node, t.Code, t.Signal = "", 0, 0
		s.say(queued, "it was put back")
	case stop != nil:
		t.By = stop.by
		s.say(ended, stop.why)
	case status.Signaled():
		s.say(ended, byCrew)
	default:
		s.say(finished, "")
	}
}

// stepMain is "pool-join YARD TICKET NODE ARGV...": it becomes argv, beside what
// runs in a job, with nothing of its own environment.
func stepMain(y yard, id, node string, argv []string) int {
	fail := func(format string, args ...any) int {
		fmt.Fprintf(os.Stderr, "pool-join: "+format+"\n", args...)
		return 1
	}
	t, err := y.load(id)
	switch {
	case err != nil:
		return fail("%v", err)
	case !t.stands() || t.Ending:
		return fail("%s %s", id, saidOver)
	case t.State != runs:
		return fail("%s %s", id, saidSoon)
	case node != "" && node != t.Node:
		return fail("%s has no node %s", id, node)
	}
	s, err := y.site()
	if err != nil {
		return fail("%v", err)
	}
	self := os.Getpid()
	if err := os.WriteFile(filepath.Join(y.dir(id), dirSteps, strconv.Itoa(self)), []byte(lease.StartTime(self)), 0o600); err != nil {
		return fail("%v", err)
	}
	env := append(slices.Clone(s.Env), y.variables(t)...)
	if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		env = append(env, "PATH=/usr/bin:/bin")
	}
	return fail("%v", unix.Exec(argv[0], argv, env))
}

// What a step says that cannot be.
const (
	saidOver = "is over"
	saidSoon = "has not begun"
)
