//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/engine"
	"berth/jobs"
)

// fault is something that is killed, stopped or removed under an environment.
// What is checked of each: the command in flight has an error and no made-up
// end, the next one works and says what happened, files are still there, and
// nothing stays behind.
type fault struct {
	name   string
	only   []string // backends that have such a thing; nil is all
	change func(*jobs.EnvOptions)
	run    func(f *faulty)
}

// faulty is an environment for one fault alone.
type faulty struct {
	*place
	word string   // of command lines and files here, unique
	seen []string // processes of the environment, all of which must be gone in the end
}

var (
	contained = []string{jobs.BackendSingularity, jobs.BackendDocker}
	onlySSH   = []string{jobs.BackendSSH}
)

func TestFaults(t *testing.T) {
	if backend() == "" {
		t.Fatal("CONFORMANCE_BACKEND names no backend")
	}
	e := newEngine(t, filepath.Join(t.TempDir(), "state"))
	var mu sync.Mutex
	result := map[string]bool{}
	all := slices.Concat(clientFaults, keeperFaults, insideFaults, linkFaults)
	cases := all
	if scheduler() != "" {
		cases = clientFaults // those of allocations are in test/cluster
	}
	t.Run("faults", func(t *testing.T) {
		for i, c := range cases {
			if c.only != nil && !slices.Contains(c.only, backend()) {
				continue
			}
			// Most of the time they wait.
			t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				c.play(t, e, i)
				mu.Lock()
				defer mu.Unlock()
				result[c.name] = !t.Failed()
			})
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if found, err := e.Collect(ctx, true); err != nil || len(found) > 0 {
		t.Errorf("left behind: %+v, %v", found, err)
	}
	var passed bytes.Buffer
	for _, c := range all {
		switch ok, played := result[c.name]; {
		case ok:
			fmt.Fprintf(&passed, "faults\t%s\t%s\n", c.name, column())
		case !played:
			fmt.Fprintf(&passed, "faults\t%s\t%s\t-\n", c.name, column())
		}
	}
	appendOut(t, passed.Bytes())
}

// play makes an environment, plays the fault, and looks for what is left.
func (c fault) play(t *testing.T, e *engine.Engine, number int) {
	o := options(fmt.Sprintf("fault-%s-%dx", tag, number))
	if c.change != nil {
		c.change(&o)
	}
	p := &place{t: t, e: e}
	v, err := e.Environment(p.ctx(), o)
	if err != nil {
		t.Fatal(explain(err))
	}
	p.v = v
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := v.Remove(ctx, true); err != nil {
			t.Error(explain(err))
		}
	})
	if p.s, err = v.Session("main"); err != nil {
		t.Fatal(err)
	}
	f := &faulty{place: p, word: fmt.Sprintf("flt%s-%dx", tag, number)}
	if v.Spec.Level == jobs.LevelNone {
		t.Cleanup(func() { _, _ = p.host("rm -rf ~/"+f.word, "") }) // where it has failed, too
	}
	f.want("mkdir ~/"+f.word+" && cd ~/"+f.word+" && echo kept >kept && echo ready", 0, "ready\n")
	c.run(f)
	f.sh("cd; rm -rf ~/" + f.word)
	f.note()
	if err := v.Stop(p.ctx()); err != nil {
		t.Error(explain(err))
	}
	f.nothingLeft()
}

// note remembers the processes that the environment has now.
func (f *faulty) note() {
	f.t.Helper()
	st, err := f.v.State(f.ctx())
	if err != nil {
		f.t.Fatal(explain(err))
	}
	tops := []string{fmt.Sprint(st.PID)}
	if backend() == jobs.BackendDocker { // they are the daemon's
		if pid := f.mustHost("docker inspect -f '{{.State.Pid}}' " + f.container()); pid != "0" {
			tops = append(tops, pid)
		}
	}
	if inCloud() {
		tops = append(tops, f.sandboxGuest())
	}
	for _, l := range f.look("tree", tops...) {
		id, _, _ := strings.Cut(l, " ")
		f.seen = append(f.seen, id)
	}
}

// container is docker's.
func (f *faulty) container() string {
	f.t.Helper()
	return f.mustHost("docker ps -aq --filter label=berth.env=" + f.v.Spec.ID)
}

// alive lists those of the remembered processes that have not ended, without
// some.
func (f *faulty) alive(but ...string) []string {
	f.t.Helper()
	var others []string
	for _, id := range f.seen {
		pid, _, _ := strings.Cut(id, ":")
		if !slices.Contains(but, pid) {
			others = append(others, id)
		}
	}
	return f.look("alive", others...)
}

// soon is how long processes may be seen that have been killed already: less than
// it takes them to leave by themselves.
const soon = 25 * time.Second

// allEnd waits until the remembered processes have ended, though no one has
// opened the environment again.
func (f *faulty) allEnd(within time.Duration, but ...string) {
	f.t.Helper()
	if len(f.seen) == 0 {
		f.t.Fatal("no process was seen")
	}
	var left []string
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if left = f.alive(but...); len(left) == 0 {
			return
		}
	}
	f.t.Errorf("still there after %v:\n%s", within, strings.Join(left, "\n"))
}

// nothingLeft looks for what a stopped environment must not have: processes,
// mounts, scratch directories, a socket; of a container no more than its files.
func (f *faulty) nothingLeft() {
	f.t.Helper()
	f.allEnd(wait)
	id := f.v.Spec.ID
	var left []string
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if left = f.look("left", id, id[len(id)-12:], f.e.Store.EnvDir(f.v.Spec.Name), f.word); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		f.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if list := f.orphans(); len(list) > 0 {
		f.t.Errorf("gc finds %+v", list)
	}
}

// orphans is what gc would remove of this environment.
func (f *faulty) orphans() (out []engine.Orphan) {
	f.t.Helper()
	list, err := f.e.Collect(f.ctx(), true)
	if err != nil {
		f.t.Error(explain(err))
	}
	for _, o := range list {
		if o.ID == f.v.Spec.ID {
			out = append(out, o)
		}
	}
	return out
}

var errMadeUp = errors.New("an end that nobody has seen")

// running runs a command in another session, which the fault is to hit.
func (f *faulty) running(text string) <-chan error {
	f.t.Helper()
	other := f.session("hit")
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*wait)
		defer cancel()
		res, err := other.s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: text}, Timeout: -1})
		if err == nil {
			err = fmt.Errorf("%w: %+v", errMadeUp, res)
		}
		ended <- err
	}()
	return ended
}

// broke checks the error of a command that the fault has hit, which names what
// happened.
func (f *faulty) broke(ended <-chan error, within time.Duration, words ...string) {
	f.t.Helper()
	select {
	case err := <-ended:
		if errors.Is(err, errMadeUp) || jobs.HintOf(err) == "" {
			f.t.Errorf("the command in flight: %v", explain(err))
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				f.t.Errorf("the command in flight does not say %q: %v", w, err)
			}
		}
	case <-time.After(within):
		f.t.Errorf("the command in flight was not told within %v", within)
	}
}

// goesOn checks that the next command works, that files from before are there,
// and that what happened is said with one of the words.
func (f *faulty) goesOn(words ...string) {
	f.t.Helper()
	res := f.want("cat ~/"+f.word+"/kept; pwd | grep -c "+f.word, 1, "kept\n0\n")
	notes := strings.Join(res.Notes, "; ")
	for _, w := range words {
		if strings.Contains(notes, w) {
			return
		}
	}
	f.t.Errorf("what happened is not said: %q holds none of %q", notes, words)
}

// appendOut writes to the list of what has passed.
func appendOut(t *testing.T, b []byte) {
	t.Helper()
	path := os.Getenv("CONFORMANCE_OUT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.Write(b); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
