package guest

import (
	"os"
	"slices"
	"strconv"
	"sync"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// shell is a session's: its state, the process that has it, and who waits for
// that.
type shell struct {
	s    *server
	name string

	mu    sync.Mutex
	taken bool
	queue []chan struct{}
	state *dump         // last seen; nil before the first
	first chan struct{} // closed when there is a state
	pid   int           // of the process; 0 is none

	warm   *warm // of whoever has the turn, as the following
	status int   // $? of the last command
	// entered says that the session was in a directory before: one that is gone
	// since is no error.
	entered bool
}

// session returns the shell of a session. The server is locked.
func (s *server) session(name string) *shell {
	sh := s.shells[name]
	if sh == nil {
		sh = &shell{s: s, name: name, first: make(chan struct{})}
		s.shells[name] = sh
	}
	return sh
}

// sessionDir is the directory of a session, from which a request for files
// begins; without a session, or before its first command, where sessions begin.
func (s *server) sessionDir(name string) string {
	s.mu.Lock()
	sh := s.shells[name]
	s.mu.Unlock()
	if sh != nil && name != "" {
		if d := sh.seen(); d != nil {
			return d.dir
		}
	}
	return s.place.startDir()
}

// isShell tells whether a process is the shell of a session.
func (s *server) isShell(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shells {
		if sh.process() == pid {
			return true
		}
	}
	return false
}

func (sh *shell) process() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.pid
}

// enqueue asks for the turn, which has come when the channel is closed. Turns
// come in the order of the calls.
func (sh *shell) enqueue() chan struct{} {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	turn := make(chan struct{})
	if sh.taken {
		sh.queue = append(sh.queue, turn)
	} else {
		sh.taken = true
		close(turn)
	}
	return turn
}

// leave gives a turn back, or the place in the queue.
func (sh *shell) leave(turn chan struct{}) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i := slices.Index(sh.queue, turn); i >= 0 {
		sh.queue = slices.Delete(sh.queue, i, i+1)
		return
	}
	if len(sh.queue) == 0 {
		sh.taken = false
		return
	}
	close(sh.queue[0])
	sh.queue = slices.Delete(sh.queue, 0, 1)
}

// seen returns the state last seen, or nil.
func (sh *shell) seen() *dump {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.state
}

func (sh *shell) see(d *dump) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.state == nil {
		close(sh.first)
	}
	sh.state = d
}

// ready makes sure that there is a process. It is called by who has the turn;
// hold is called with the process while it begins and is not yet good.
func (sh *shell) ready(hold func(pid int)) *jobs.Exit {
	if sh.warm != nil {
		if sh.s.reaper.lives(sh.warm.pid) {
			return nil
		}
		// It ended with the guest, by a signal from outside, or for want of memory.
		<-sh.warm.dead
		sh.drop()
	}
	// A former state has all variables; one that was unset must not come back.
	before, place := sh.seen(), &sh.s.place
	env, login, restore := []string{}, false, ""
	if before != nil {
		restore = before.restore(place.dialect(), false)
	} else {
		env, login = place.env, place.login
		restore = place.dialect().eval + quote(place.dialect().builtin+"cd -- "+quote(place.startDir())) +
			"\n" + place.dialect().builtin + "unset OLDPWD\n"
	}
	w, err := sh.s.startWarm(env, login, restore)
	if err != nil {
		return notStarted(codeCannot, "start the session's shell: %v", reason(err))
	}
	sh.keep(w)
	hold(w.pid)
	defer hold(0)
	var d *dump
	select {
	case b := <-w.dumps:
		d, err = w.dump(b)
	case <-w.dead:
		d, err = nil, errStopped
	}
	if err != nil {
		sh.drop()
		return notStarted(codeCannot, "start the session's shell %s: %v", sh.s.place.shell, err)
	}
	if before == nil {
		// Where it has begun is the guest's own directory.
		d.dir = sh.s.place.startDir()
	} else {
		// Even if it cannot be entered now.
		d.dir = before.dir
	}
	sh.see(d)
	return nil
}

func (sh *shell) keep(w *warm) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.warm, sh.pid = w, w.pid
}

// drop forgets a process that has ended; one that has not is ended.
func (sh *shell) drop() {
	w := sh.warm
	select {
	case <-w.dead:
	default:
		_ = sh.s.reaper.signalGroup(w.pid, unix.SIGKILL)
		<-w.dead
	}
	sh.mu.Lock()
	sh.warm, sh.pid = nil, 0
	sh.mu.Unlock()
	w.release()
}

// moved tells whether the process' directory is not the one of that name: it
// has not begun there, or another one was put in its place.
func (w *warm) moved(dir string) bool {
	var is, should unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(w.pid)+"/cwd", &is) != nil || unix.Stat(dir, &should) != nil {
		return true
	}
	return is.Dev != should.Dev || is.Ino != should.Ino
}

// children lists the processes that a shell has started and not waited for.
func (w *warm) children() map[int]bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(w.pid) + "/task/" + strconv.Itoa(w.pid) + "/children")
	if err != nil {
		return nil // the kernel was built without it
	}
	return pidSet(string(b))
}
