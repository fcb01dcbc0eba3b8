package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/internal/sys/leaks"
	"berth/jobs"
)

// The test binary is also the other processes of its tests: what they do stands
// in this variable.
const childVar = "BERTH_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch words := strings.Fields(os.Getenv(childVar)); {
	case len(words) == 0:
		leaks.Main(m)
	case words[0] == "create":
		createForever(words[1])
	case words[0] == "once":
		createOnceChild(words[1], words[2])
	case words[0] == "history":
		historyChild(words[1], words[2], words[3])
	}
}

// noSleep keeps the race detector from waiting a second at the end.
const noSleep = "GORACE=atexit_sleep_ms=0"

func child(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVar+"="+strings.Join(words, " "), noSleep)
	cmd.Stderr = os.Stderr
	return cmd
}

// asNobody runs one test again as an ordinary user, for whom permissions mean
// something. It returns whether this process is to go on with the test.
func asNobody(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	const nobody = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	tmp := filepath.Join(dir, "tmp")
	must(t, os.Mkdir(tmp, 0o700))
	must(t, os.Chown(tmp, nobody, nobody))
	cmd := child(t)
	cmd.Args = []string{"test", "-test.v", "-test.run=^" + t.Name() + "$"}
	cmd.Dir = tmp
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, noSleep}
	cmd.Stderr = nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
	return false
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	s.index = filepath.Join(t.TempDir(), "index")
	return s
}

// sample is a small job about to be recorded.
func sample(t testing.TB) New {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	aid, err := ids.New()
	must(t, err)
	now := time.Now().UTC()
	return New{
		Spec:    jobs.Spec{Version: 1, ID: id, Name: "Fix", Slug: "fix", Command: jobs.Command{Shell: "true"}, Created: now, Place: jobs.Place{Scheduler: "slurm", Backend: "local", Level: jobs.LevelNone}},
		Attempt: jobs.AttemptInfo{Version: 1, ID: aid, Number: 1, Name: jobs.JobName("fix", aid), Created: now},
		Task:    []byte("# fix\n"), Prompt: []byte("fix it"), Secrets: []string{"TOKEN=canary"},
		Script: func(dir string) (string, error) { return "#!/bin/bash\nexec " + dir + "\n", nil },
	}
}

func create(t testing.TB, s *Store) *jobs.Record {
	t.Helper()
	r, err := s.Create(sample(t))
	must(t, err)
	return r
}

// createForever records jobs until it is killed, and prints the id of each one
// that it was told is recorded.
func createForever(home string) {
	s, err := Open(home)
	if err != nil {
		panic(err)
	}
	out := bufio.NewWriter(os.Stdout)
	for {
		r, err := s.Create(sample(&testing.T{}))
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintln(out, r.Spec.ID)
		_ = out.Flush()
	}
}

// createOnceChild competes for the files 0, 1, 2... of a directory and prints
// how many it won.
func createOnceChild(dir, count string) {
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	for { // so that all begin together
		if _, err := os.Stat(filepath.Join(dir, "go")); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	won := 0
	for i := range n {
		ok, err := CreateOnce(filepath.Join(dir, strconv.Itoa(i)), fmt.Appendf(nil, "process %d", os.Getpid()))
		if err != nil {
			panic(err)
		}
		if ok {
			won++
		}
	}
	fmt.Print(won)
}
