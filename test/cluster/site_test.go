//go:build cluster

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// site is one cluster of scripts/testbed.
type site struct {
	version, profile string
	image            string // "" where there is no Apptainer
	testbed          string // "": the one that BERTH_TESTBED names
}

var (
	standard = site{version: "24.11", profile: "standard", image: "/opt/images/base.sif"}
	old      = site{version: "22.05", profile: "standard"}
	newer    = site{version: "26.05", profile: "standard", image: "/opt/images/base.sif"}
	strict   = site{version: "24.11", profile: "strict", image: "/opt/images/base.sif"}
)

// answer is how a command on the login node ended.
type answer struct {
	out, err string
	code     int
}

// root is the top of the checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// crowd is held by a test whose many jobs at once leave the other clusters of this
// machine little of it, and read by one of what berth promises to do in a time.
var crowd sync.RWMutex

// bed is the name of the testbed that has the cluster.
func (s site) bed() string {
	return cmp.Or(s.testbed, os.Getenv("BERTH_TESTBED"), "berth-tb")
}

// container is the name of the container that is a host.
func (s site) container(host string) string {
	name := s.bed() + "-" + s.version
	if s.profile != "standard" {
		name += "-" + s.profile
	}
	return name + "-" + host
}

// patience is how long a test waits for something before it fails: a machine
// that does much else is no failure.
const patience = 5 * time.Minute

// longest bounds one command in a cluster, and is only there against hanging: a
// suite of a quarter of an hour is one command.
const longest = 4 * patience

// on runs a program somewhere in the cluster as a user.
func (s site) on(t *testing.T, host, user string, argv ...string) answer {
	t.Helper()
	// Not ended with the test: clean-up runs commands too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), longest)
	defer cancel()
	args := append([]string{"shell", "--slurm", s.version, "--profile", s.profile, "--host", host, "--user", user, "--"}, argv...)
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "scripts", "testbed"), args...)
	cmd.Env = append(os.Environ(), "BERTH_TESTBED="+s.bed())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatalf("%v: %v\n%s", argv, err, errs.String())
	}
	return answer{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// sh runs a shell text as alice on the login node.
func (s site) sh(t *testing.T, text string) answer {
	t.Helper()
	return s.on(t, "login", "alice", "bash", "-c", "export PATH=/mnt/share/bin:$PATH; "+text)
}

// ok is sh for a text that must succeed; it returns its stdout.
func (s site) ok(t *testing.T, text string) string {
	t.Helper()
	a := s.sh(t, text)
	if a.code != 0 {
		t.Fatalf("%s\nexit code %d\nstdout: %s\nstderr: %s", text, a.code, a.out, a.err)
	}
	return strings.TrimSpace(a.out)
}

// want runs a text whose exit code and stderr are known beforehand.
func (s site) want(t *testing.T, text string, code int, stderr ...string) answer {
	t.Helper()
	a := s.sh(t, text)
	if a.code != code {
		t.Fatalf("%s\nexit code %d, want %d\nstdout: %s\nstderr: %s", text, a.code, code, a.out, a.err)
	}
	for _, re := range stderr {
		if !regexp.MustCompile(re).MatchString(a.err) {
			t.Errorf("%s\nstderr does not match %q:\n%s", text, re, a.err)
		}
	}
	return a
}

// need makes the test wait until a cluster of this kind is free, which it then has
// for itself with all its subtests: the clusters share nothing, and tests on
// different ones run at once. It skips when the cluster is not up; scripts/test
// fails on such a skip where the cluster must be there.
func (s *site) need(t *testing.T) {
	t.Helper()
	if !s.asked() {
		*s = standard
	}
	kind := s.version + s.profile
	key := kind + "\x00" + t.Name()
	if has, twice := users.Load(key); twice {
		*s = has.(site)
		return
	}
	t.Parallel()
	free := s.free()
	mine := <-free
	*s = mine
	users.Store(key, mine)
	t.Cleanup(func() { users.Delete(key); free <- mine })
	s.up(t)
}

// asked reports whether the tests are to use clusters of this version of Slurm.
// BERTH_TESTBED_SLURM names the only one where it is set; a test of another one's
// site alone is then one of the standard site.
func (s site) asked() bool {
	return cmp.Or(os.Getenv("BERTH_TESTBED_SLURM"), s.version) == s.version
}

// free has the clusters of a site's kind that no test uses: one, and one more of
// what most tests use where BERTH_TESTBED_TWIN names its testbed.
func (s site) free() chan site {
	made.Lock()
	defer made.Unlock()
	kind := s.version + s.profile
	if c := turns[kind]; c != nil {
		return c
	}
	c := make(chan site, 2)
	c <- s
	if twin := os.Getenv("BERTH_TESTBED_TWIN"); twin != "" && s == standard {
		s.testbed = twin
		c <- s
	}
	turns[kind] = c
	return c
}

// up skips the test when the cluster is not up. One whose containers run is given
// time: it may be busy, or just coming back from what the last test did to it.
func (s site) up(t *testing.T) {
	t.Helper()
	if why, down := away.Load(s); down {
		t.Skipf("the cluster %s %s is not up: %s", s.version, s.profile, why)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		out, err := s.healthy(t)
		if err == nil {
			return
		}
		if strings.Contains(out, " 0 of 4 containers run") || time.Now().After(deadline) {
			away.Store(s, out)
			t.Skipf("the cluster %s %s is not up: %s", s.version, s.profile, out)
		}
	}
}

// turns has for each kind of site the clusters that no test uses.
var (
	turns = map[string]chan site{}
	made  sync.Mutex
)

// users has the tests that use a cluster, and which; away has the clusters that
// were not up, each with what was said.
var users, away sync.Map

// still has a lock for each site: who needs both nodes to be there beside the
// test whose turn it is reads it, and who takes a node away writes it.
var still sync.Map

func (s site) lock() *sync.RWMutex {
	l, _ := still.LoadOrStore(s, &sync.RWMutex{})
	return l.(*sync.RWMutex)
}

// disturb waits until no one beside this test needs the nodes, and keeps it so to
// the test's end.
func (s site) disturb(t *testing.T) {
	t.Helper()
	s.lock().Lock()
	t.Cleanup(s.lock().Unlock)
}

// TestMain lets as many tests wait for their turns as there are.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func (s site) healthy(t *testing.T) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience) // clean-up asks, too
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root(t), "scripts", "testbed"), "status", "--slurm", s.version, "--profile", s.profile)
	cmd.Env = append(os.Environ(), "BERTH_TESTBED="+s.bed())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// put writes a file of alice's in a fresh directory that the nodes see, and
// returns the directory.
func (s site) dir(t *testing.T) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
	d := s.ok(t, "mktemp -d ~/"+name+".XXXXXX")
	t.Cleanup(func() {
		if os.Getenv("BERTH_KEEP") == "" {
			s.on(t, "login", "root", "rm", "-rf", d)
		}
	})
	return d
}

// status is what the tests read of `berth status --json`.
type status struct {
	ID, Short, Name, State string
	Final                  bool
	ExitCode               int `json:"exit_code"`
	Exit                   struct {
		Started      bool
		Code, Signal int
		OOM          bool
	}
	Reason, Hint string
	NativeID     string `json:"native_id"`
	Word         string `json:"scheduler_state"`
	Node, Dir    string
	Branch       string
	Taken        bool `json:"branch_taken"`
	Result       struct {
		Base, Commit                 string
		Files, Insertions, Deletions int
		OutOfScope                   []string `json:"out_of_scope"`
		LookAt                       []string `json:"look_at"`
	}
	Artifacts []string
	LeftOut   []omission `json:"left_out"`
	Kept      struct {
		Dir  string
		Lost int `json:"lost_files"`
	}
	CancelBy string `json:"cancelled_by"`
	OOMKills int    `json:"oom_kills"`
	Notes    []string
}

// omission is what of a result did not come back, for one reason.
type omission struct {
	Of, Kind string
	Paths    int
	Names    []string
}

func (s site) status(t *testing.T, id string) status {
	t.Helper()
	var got struct{ Jobs []status }
	out := s.ok(t, "berth status --json "+id)
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Jobs) != 1 {
		t.Fatalf("status of %s: %v\n%s", id, err, out)
	}
	return got.Jobs[0]
}

// wait waits for a job and checks the exit code.
func (s site) wait(t *testing.T, id string, code int) status {
	t.Helper()
	a := s.sh(t, "berth wait --timeout 10m "+id)
	if a.code != code {
		t.Fatalf("berth wait %s: exit code %d, want %d\n%s\n%s\nruntime log:\n%s", id, a.code, code, a.err, s.sh(t, "berth status "+id).out, s.sh(t, "berth logs --runtime "+id).out)
	}
	return s.status(t, id)
}

// pause is between two looks of who has waited since began: what comes soon is
// seen soon, and who waits for a minute does not keep a core busy with looking.
func pause(began time.Time) {
	time.Sleep(min(200*time.Millisecond+time.Since(began)/20, time.Second))
}

// state waits until a job is in a state.
func (s site) state(t *testing.T, id, state string) status {
	t.Helper()
	for began := time.Now(); ; pause(began) {
		st := s.status(t, id)
		if st.State == state {
			return st
		}
		if st.Final || time.Since(began) > patience {
			t.Fatalf("job %s is %s (%s), want %s", id, st.State, st.Reason, state)
		}
	}
}

// unhurried has Slurm leave 30 s between TERM and KILL to the test's end, as it does
// where no one has set that: the 5 s of this testbed are not enough on a machine
// that does much else for what a job does with a TERM.
func (s site) unhurried(t *testing.T) {
	t.Helper()
	s.configure(t, "KillWait", 30, 5)
}

// configure sets a time of Slurm's, in seconds, to the test's end.
func (s site) configure(t *testing.T, name string, seconds, usual int) {
	t.Helper()
	set := func(seconds int) {
		if a := s.on(t, "ctl", "root", "bash", "-c", fmt.Sprintf("sed -i 's/^%[1]s=.*/%[1]s=%[2]d/' /etc/slurm/slurm.conf && scontrol reconfigure", name, seconds)); a.code != 0 {
			t.Fatalf("%s=%d: %+v", name, seconds, a)
		}
		waitFor(t, patience, func() bool {
			a := s.sh(t, fmt.Sprintf("scontrol show config | grep -qx '%s *= %d sec'", name, seconds))
			_, err := s.healthy(t)
			return a.code == 0 && err == nil
		})
	}
	set(seconds)
	t.Cleanup(func() { set(usual) })
}

// remains lists what a job of alice's must not leave on a machine: processes of
// berth's or of a test's task (they sleep 31x seconds), and scratch directories. The
// directories of the user's copies of images and of scratch directories are none:
// they stay, and a container to which a directory above them is bound makes them, so
// that they can be hidden.
const remains = `pgrep -u alice -af "berth|apptainer|fuse|sleep 31[0-9]"; find /tmp /var/tmp -maxdepth 1 -user alice -name 'berth-1000-*' | grep -vE '/berth-1000-(images|scratch)(-[0-9]+)?$'; find /tmp/berth-1000-scratch* /var/tmp/berth-1000-scratch* -mindepth 1 -maxdepth 1 2>/dev/null`

// quiet checks that a job has left nothing on the nodes: no process of
// berth's or of a test's task (they sleep 31x seconds), no scratch directory, no
// FUSE mount. The images that a user's jobs share there stay.
func (s site) quiet(t *testing.T) {
	t.Helper()
	for _, node := range []string{"c1", "c2"} {
		s.bare(t, node, remains+`; grep -E 'fuse\.(squashfuse|fuse-overlayfs|fuse2fs)' /proc/mounts`)
	}
}

// bare checks that what a text lists on a host, as root, is nothing in the end:
// the processes of a job outlive its record by a moment. What another test has
// failed for already is neither waited for nor told again.
func (s site) bare(t *testing.T, host, list string) {
	t.Helper()
	for began := time.Now(); ; pause(began) {
		var left []string
		for line := range strings.Lines(s.on(t, host, "root", "bash", "-c", list).out) {
			if _, known := told.Load(s.container(host) + "\x00" + line); !known && strings.TrimSpace(line) != "" {
				left = append(left, line)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(began) > patience {
			for _, line := range left {
				told.Store(s.container(host)+"\x00"+line, true)
			}
			t.Errorf("left on %s:\n%s", host, strings.Join(left, ""))
			return
		}
	}
}

// told has what was left on a host when a test ended, and made it fail.
var told sync.Map
