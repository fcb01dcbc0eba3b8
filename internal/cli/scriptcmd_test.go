package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// codeCmd is "code N PROGRAM ARGS...": the program must exit with N.
func codeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s exited with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// idCmd is "id NAME": what the last command printed is a job's id and nothing
// else, and goes into the variable.
func idCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: id NAME")
	}
	out := ts.ReadFile("stdout")
	if !regexp.MustCompile(`^[0-9a-f]{8}\n$`).MatchString(out) {
		ts.Fatalf("%q is not an id and nothing else", out)
	}
	ts.Setenv(args[0], strings.TrimSpace(out))
}

// awaitCmd is "await state ID STATE", "await text FILE REGEXP", "await exists
// FILE" or "await gone TEXT", which waits for the end of the processes with TEXT in their command
// line.
func awaitCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await state ID STATE | text FILE REGEXP | gone TEXT")
	}
	var last string
	check := func() bool {
		switch args[0] {
		case "state":
			last = stateOf(ts, args[1])
			return last == args[2]
		case "text":
			b, _ := os.ReadFile(ts.MkAbs(args[1]))
			last = string(b)
			return regexp.MustCompile(args[2]).MatchString(last)
		case "exists":
			_, err := os.Stat(ts.MkAbs(args[1]))
			return err == nil
		case "gone":
			for _, line := range processesOf(ts.Getenv("WORK")) {
				if strings.Contains(line, args[1]) {
					last = line
					return false
				}
			}
			return true
		}
		ts.Fatalf("await %s", args[0])
		return false
	}
	for deadline := time.Now().Add(patience); !check(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("await %s: still %q", strings.Join(args, " "), last)
		}
	}
}

// stateOf reads the ledger's files itself, so that a wait costs no berth.
func stateOf(ts *testscript.TestScript, id string) string {
	dirs, _ := filepath.Glob(filepath.Join(ts.Getenv("BERTH_HOME"), "jobs", "*", "*"+id, "attempts", "0001"))
	if len(dirs) != 1 {
		return "unknown"
	}
	var exit struct {
		State string `json:"state"`
	}
	b, err := os.ReadFile(filepath.Join(dirs[0], "exit.json"))
	if err == nil && json.Unmarshal(b, &exit) == nil {
		return exit.State
	}
	if b, err := os.ReadFile(filepath.Join(dirs[0], "events.jsonl")); err == nil && strings.Contains(string(b), `"started"`) {
		return "running"
	}
	return "pending"
}

// plainCmd is "plain SOURCE FILE": what a source (stdout, stderr, a file)
// holds, without what differs from run to run, goes into the file.
func plainCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: plain SOURCE FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(plainText(ts, ts.ReadFile(args[0]))), 0o600))
}

// transcriptCmd is "transcript SOURCE FILE": it runs the lines of the source
// that begin with "$ " in a shell and writes them, each with its output and
// exit code, to the file; "cmp FILE SOURCE" then compares. Lines on the
// standard output are marked with "> ".
func transcriptCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: transcript SOURCE FILE")
	}
	var b strings.Builder
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if line == "\n" || strings.HasPrefix(line, "#") {
			b.WriteString(line)
			continue
		}
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if !ok {
			continue // what the command wrote when the golden was made
		}
		code := 0
		var exit *exec.ExitError
		if err := ts.Exec("bash", "-c", command); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		b.WriteString(line)
		for out := range strings.Lines(ts.ReadFile("stdout")) {
			b.WriteString("> " + out)
		}
		b.WriteString(ts.ReadFile("stderr"))
		if code != 0 {
			b.WriteString("exit " + strconv.Itoa(code) + "\n")
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(plainText(ts, b.String())), 0o600))
}

type spawnedKey struct{}

// spawnCmd is "spawn NAME PROGRAM ARGS...": its output goes to the files
// NAME.out and NAME.err.
func spawnCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: spawn NAME PROGRAM ARGS...")
	}
	path := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if fi, err := os.Stat(filepath.Join(dir, args[1])); err == nil && fi.Mode()&0o111 != 0 && path == "" {
			path = filepath.Join(dir, args[1])
		}
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, n := range []string{"PATH", "HOME", "BERTH_HOME", "XDG_CONFIG_HOME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "BERTH_ENV", "WORK", "GOCOVERDIR", "BERTH_TEST_SECOND"} {
		cmd.Env = append(cmd.Env, n+"="+ts.Getenv(n))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	defer out.Close()
	errFile, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	defer errFile.Close()
	cmd.Stdout, cmd.Stderr = out, errFile
	ts.Check(cmd.Start())
	spawned(ts)[args[0]] = cmd
}

func spawned(ts *testscript.TestScript) map[string]*exec.Cmd {
	m, ok := ts.Value(spawnedKey{}).(map[string]*exec.Cmd)
	if !ok {
		ts.Fatalf("no spawned programs")
	}
	return m
}

// sigCmd is "sig NAME INT|TERM|KILL".
func sigCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || spawned(ts)[args[0]] == nil {
		ts.Fatalf("usage: sig NAME SIGNAL")
	}
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[1]]
	ts.Check(spawned(ts)[args[0]].Process.Signal(sig))
}

// reapCmd is "reap NAME CODE": the program ends with the code; -1 is a signal.
func reapCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || spawned(ts)[args[0]] == nil {
		ts.Fatalf("usage: reap NAME CODE")
	}
	cmd := spawned(ts)[args[0]]
	watchdog := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	watchdog.Stop()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Check(err)
	}
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s exited with %s, want %s\n%s%s", args[0], got, args[1], ts.ReadFile(args[0]+".out"), ts.ReadFile(args[0]+".err"))
	}
}

// noRecordsCmd is "norecords": the ledger holds no job, whole or half.
func noRecordsCmd(ts *testscript.TestScript, _ bool, _ []string) {
	left, err := filepath.Glob(filepath.Join(ts.Getenv("BERTH_HOME"), "jobs", "*", "*"))
	ts.Check(err)
	hidden, err := filepath.Glob(filepath.Join(ts.Getenv("BERTH_HOME"), "jobs", "*", ".*"))
	ts.Check(err)
	if left = append(left, hidden...); len(left) > 0 {
		ts.Fatalf("left in the ledger: %q", left)
	}
}
