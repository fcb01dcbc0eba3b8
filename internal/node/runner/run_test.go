package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// stubborn is a tree that TERM does not end: a shell, and a child in a session
// of its own whose parent is gone.
const stubborn = `trap "" TERM; (setsid sh -c 'trap "" TERM; while :; do sleep 0.1; done' &); echo ready; while :; do sleep 0.1; done`

func TestEnds(t *testing.T) {
	limit := func(n *store.New) { n.Spec.Resources.Time = 300 * time.Millisecond }
	later := func(n *store.New) { n.Spec.Resources.Time = slow } // when it has set its trap
	for _, c := range []struct {
		name, command string
		change        func(*store.New)
		code          int
		state         jobs.State
		exit          jobs.Exit
		reason        string
	}{
		{name: "ok", command: "true", state: jobs.StateCompleted, exit: jobs.Exit{Started: true}},
		{name: "code", command: "exit 3", code: 1, state: jobs.StateFailed, exit: jobs.Exit{Started: true, Code: 3}, reason: "exit code 3"},
		{name: "signal", command: "kill -SEGV $$", code: 1, state: jobs.StateFailed, exit: jobs.Exit{Started: true, Code: 139, Signal: 11}, reason: "signal 11"},
		{name: "killed", command: "kill -KILL $$", code: 1, state: jobs.StateFailed, exit: jobs.Exit{Started: true, Code: 137, Signal: 9}, reason: "signal 9"},
		{name: "argv", change: func(n *store.New) { n.Spec.Command = jobs.Command{Argv: []string{"sh", "-c", `exit "$1"`, "sh", "5"}} },
			code: 1, state: jobs.StateFailed, exit: jobs.Exit{Started: true, Code: 5}, reason: "exit code 5"},
		{name: "missing", change: func(n *store.New) { n.Spec.Command = jobs.Command{Argv: []string{"no-such-program"}} },
			code: 1, state: jobs.StateFailed, exit: jobs.Exit{Code: 127}, reason: "did not start"},
		{name: "leaves children", command: "(setsid sleep 60 &); (sleep 60 &); true", state: jobs.StateCompleted, exit: jobs.Exit{Started: true}},
		{name: "time limit", command: "sleep 60", change: limit, code: 124, state: jobs.StateTimeout, exit: jobs.Exit{Started: true, Code: 143, Signal: 15}, reason: "time limit"},
		{name: "time limit and politely", command: "trap 'exit 0' TERM; while :; do sleep 0.05; done", change: later, code: 124, state: jobs.StateTimeout, exit: jobs.Exit{Started: true}, reason: "time limit"},
		{name: "time limit and stubborn", command: stubborn, change: later, code: 124, state: jobs.StateTimeout, exit: jobs.Exit{Started: true, Code: 137, Signal: 9}, reason: "time limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, c.command, c.change)
			if c.exit.OK() {
				j.periods.Grace = patient
			}
			if c.command == "" { // an argv
				j = newJob(t, "", c.change)
			}
			code, rec := j.run()
			rec.Exit.Error = ""
			if code != c.code || rec.Code != c.code || rec.State != c.state || rec.Exit != c.exit || !strings.Contains(rec.Reason, c.reason) {
				t.Errorf("exit %d, record %+v; want %d %s %+v %q\n%s", code, rec, c.code, c.state, c.exit, c.reason, j.read(store.FileRuntime))
			}
			if left := j.scratches(); len(left) > 0 {
				t.Errorf("left on the node: %q", left)
			}
		})
	}
}

// What a command is given: its prompt twice, secrets, its own variables, and
// of the scheduler's only those that do not reach back.
func TestWhatACommandGets(t *testing.T) {
	t.Parallel()
	j := newJob(t, `cat; echo; cat "$BERTH_PROMPT_FILE"; echo; env >env; stat -c %a "$BERTH_PROMPT_FILE"; pwd`, func(n *store.New) {
		n.Prompt = []byte("mend\x00 it ü")
		n.Secrets = []string{"TOKEN=two words\nand a line", "EMPTY="}
		n.Spec.Env = []string{"GREETING=hello", "SLURM_CPUS_ON_NODE=mine"}
		n.Spec.Resources.Time = time.Hour
		n.Spec.Profile.Proxy = jobs.Proxy{HTTPS: "http://site:3128", No: ".example.org"}
	})
	j.env = []string{"SLURM_JOB_ID=17", "SLURM_CPUS_ON_NODE=4", "SLURM_JWT=secret", "SSH_AUTH_SOCK=/x", "GITHUB_TOKEN=leak", "CUDA_VISIBLE_DEVICES=0", "HTTP_PROXY=http://u:p@h"}
	if code, rec := j.run(); code != 0 {
		t.Fatalf("exit %d: %+v\n%s", code, rec, j.read(store.FileStderr))
	}
	if got, want := j.read(store.FileStdout), "mend\x00 it ü\nmend\x00 it ü\n600\n"+j.tmp+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b, err := os.ReadFile(filepath.Join(j.tmp, "env"))
	if err != nil {
		t.Fatal(err)
	}
	env := "\n" + string(b)
	for _, want := range []string{"\nTOKEN=two words\nand a line\n", "\nEMPTY=\n", "\nGREETING=hello\n", "\nSLURM_CPUS_ON_NODE=mine\n", "\nSLURM_JOB_ID=17\n", "\nCUDA_VISIBLE_DEVICES=0\n",
		"\nhttps_proxy=http://site:3128\n", "\nHTTPS_PROXY=http://site:3128\n", "\nno_proxy=.example.org\n",
		"\nBERTH_JOB_ID=" + j.rec.Spec.ID + "\n", "\nBERTH_ATTEMPT=" + j.rec.Current().Info.ID + "\n", "\nBERTH_DEADLINE=2", "\nHOME=" + j.tmp + "\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is missing in %s", want, env)
		}
	}
	for _, no := range []string{"SLURM_JWT", "SSH_AUTH_SOCK", "GITHUB_TOKEN", "u:p@h", envTimes} {
		if strings.Contains(env, no) {
			t.Errorf("%s has come through", no)
		}
	}
	if _, err := os.Lstat(filepath.Join(j.dir, "env")); err == nil {
		t.Error("the secrets are still on the disk")
	}
}

// Output that cannot be written is lost, and noted; the command goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo lost; echo kept >&2; seq 100000; exit 4", nil)
	if err := os.Symlink("/dev/full", filepath.Join(j.dir, store.FileStdout)); err != nil {
		t.Fatal(err)
	}
	_, rec := j.run()
	if rec.Exit.Code != 4 || !strings.Contains(strings.Join(rec.Notes, " "), "no space left on device") {
		t.Errorf("record %+v", rec)
	}
	if got := j.read(store.FileStderr); got != "kept\n" {
		t.Errorf("stderr %q", got)
	}
}

// A second runner of the same attempt touches nothing.
func TestClaimedTwice(t *testing.T) {
	t.Parallel()
	j := newJob(t, "echo x; sleep 60", nil)
	j.start()
	j.says("x")
	second := *j
	before := j.files()
	code, _ := second.run()
	if code != jobs.CodeAgain || !strings.Contains(second.stderr.String(), "claimed by another runner") || !strings.Contains(second.stderr.String(), "berth: hint: nothing was touched") {
		t.Errorf("exit %d, %s", code, second.stderr)
	}
	if after := j.files(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if len(j.scratches()) != 1 {
		t.Errorf("on the node: %q", j.scratches())
	}
	j.signal(syscall.SIGTERM)
	if code, rec := j.wait(); code != jobs.CodeInterrupted {
		t.Errorf("the first one: exit %d, %+v", code, rec)
	}
	// After the end, too.
	third := *j
	before = j.files()
	if code, _ := third.run(); code != jobs.CodeAgain || j.files() != before {
		t.Errorf("exit %d, before:\n%s\nafter:\n%s", code, before, j.files())
	}
}

// files lists the attempt's files that a runner writes once.
func (j *job) files() string {
	var b strings.Builder
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && e.Name() != "beat" {
			b.WriteString(e.Name() + " " + fi.ModTime().Format(time.RFC3339Nano) + "\n")
		}
	}
	return b.String()
}

func TestUsage(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, args := range [][]string{{}, {"--attempt", "/x", "--standby", "/x"}, {"--", "true"}, {"--nope"}} {
		if got := start(args, nil, &said, defaultTimes()); got != jobs.CodeUsage {
			t.Errorf("%q: exit %d", args, got)
		}
	}
	said.Reset()
	if got := start([]string{"--attempt", t.TempDir() + "/a/attempts/0001", "--", "true"}, nil, &said, defaultTimes()); got != jobs.CodeInfra || !strings.Contains(said.String(), "does this node see") {
		t.Errorf("a directory that is not there: exit %d: %s", got, said.String())
	}
}
