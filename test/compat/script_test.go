//go:build compat

package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/test/fakes/siftest"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long something is waited for before a script fails.
const patience = 2 * time.Minute

func TestScripts(t *testing.T) {
	places := map[string]string{"local": "backend = \"local\"\n"}
	if name := image(); name != "" {
		places["docker"] = fmt.Sprintf("backend = \"docker\"\ndocker_image = %q\n", name)
	}
	orders := map[string][2]string{"old-first": {before, now}, "new-first": {now, before}}
	for order, programs := range orders {
		for place, config := range places {
			t.Run(order+"/"+place, func(t *testing.T) {
				t.Parallel()
				run(t, "place", programs, "[terminal]\n"+config)
			})
		}
		if places["docker"] == "" {
			t.Run(order+"/docker", func(t *testing.T) {
				t.Skip("no image berth-testbed-base here, or no daemon; scripts/testbed up makes it")
			})
		}
		t.Run(order+"/plain", func(t *testing.T) {
			t.Parallel()
			run(t, "plain", programs, "")
		})
	}
}

func run(t *testing.T, dir string, programs [2]string, config string) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fields": fieldsCmd, "code": codeCmd, "var": varCmd, "await": awaitCmd,
		},
		Setup: func(env *testscript.Env) error {
			for _, d := range []string{"home", "run", "config/berth"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, d), 0o700); err != nil {
					return err
				}
			}
			for name, text := range map[string]string{
				"config/berth/config.toml": config,
				"home/.gitconfig":          "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n",
				"py.sif":                   string(siftest.New(uuid.UUID([]byte("0123456789abcdef")), []byte("a file system"))),
			} {
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(text), 0o600); err != nil {
					return err
				}
			}
			for name, value := range map[string]string{
				"FIRST": programs[0], "OTHER": programs[1], "OLD": before, "NEW": now, "LATER": later, "BERTH_ENV": "place",
				"HOME": filepath.Join(env.WorkDir, "home"), "BERTH_HOME": filepath.Join(env.WorkDir, "state"), "XDG_RUNTIME_DIR": filepath.Join(env.WorkDir, "run"),
				"XDG_CONFIG_HOME": filepath.Join(env.WorkDir, "config"), "SHELL": "/bin/bash",
				"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
			} {
				env.Setenv(name, value)
			}
			env.Defer(func() {
				stop := exec.Command(now, "env", "stop", "place") // it is gone already, unless the script has failed
				stop.Env = env.Vars
				_ = stop.Run()
				leftovers(env.T(), env.WorkDir)
			})
			return nil
		},
	})
}

// leftovers fails a script when a process or a container of its own stays.
func leftovers(t testscript.T, work string) {
	state := filepath.Join(work, "state")
	var left []string
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if left = processes(work); len(left) == 0 || time.Now().After(until) {
			break
		}
	}
	if out, err := exec.Command("docker", "ps", "-aq", "--filter", "label=berth.home="+state).Output(); err == nil {
		for _, id := range strings.Fields(string(out)) {
			left = append(left, "container "+id)
			_ = exec.Command("docker", "rm", "-f", "-v", id).Run()
		}
	}
	if len(left) > 0 {
		t.Fatal("left behind:", strings.Join(left, "\n"))
	}
}

// processes are those that have a script's directory in their environment or
// command line.
func processes(work string) (left []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if pid != os.Getpid() && strings.Contains(string(line)+string(environ), work+"/") {
			left = append(left, fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return left
}

// codeCmd is "code N PROGRAM ARGS...": the program must exit with N.
func codeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("%s exited with %d, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

// varCmd is "var NAME": what the last command printed goes into the variable.
func varCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: var NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// awaitCmd is "await TEXT PROGRAM ARGS...": the program is run until it prints
// the text.
func awaitCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await TEXT PROGRAM ARGS...")
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("await %q: still %q", args[0], ts.ReadFile("stdout"))
		}
	}
}

// fieldsCmd is "fields ARGS...": the old program and the new one are run so, to
// print JSON, and every field that the old one prints the new one prints, too, with
// a value of the same kind. What they exit with is the same.
func fieldsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: fields ARGS... --json")
	}
	var all [2]map[string]string
	var codes [2]int
	for i, program := range []string{before, now} {
		var exit *exec.ExitError
		if err := ts.Exec(program, args...); errors.As(err, &exit) {
			codes[i] = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		all[i] = map[string]string{}
		d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
		for d.More() {
			var v any
			ts.Check(d.Decode(&v))
			paths("", v, all[i])
		}
	}
	var bad []string
	for _, path := range slices.Sorted(maps.Keys(all[0])) {
		if was, is := all[0][path], all[1][path]; is != was && was != "null" && is != "null" {
			bad = append(bad, fmt.Sprintf("%s was a %s and is %q", path, was, is))
		}
	}
	if codes[0] != codes[1] {
		bad = append(bad, fmt.Sprintf("the exit code was %d and is %d", codes[0], codes[1]))
	}
	if len(bad) > 0 || len(all[0]) < 2 {
		ts.Fatalf("berth %s: of %d fields\n%s", strings.Join(args, " "), len(all[0]), strings.Join(bad, "\n"))
	}
}

// paths notes the fields of a JSON value with the kinds of their values. All
// elements of an array are one.
func paths(at string, v any, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		into[at+"{}"] = "object"
		for k, f := range v {
			paths(at+"."+k, f, into)
		}
	case []any:
		into[at+"[]"] = "array"
		for _, e := range v {
			paths(at+"[]", e, into)
		}
	case nil:
		into[at] = "null"
	default:
		into[at] = fmt.Sprintf("%T", v)
	}
}
