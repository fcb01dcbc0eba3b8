package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/doctor"
	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// onTerminal is an app whose output is a terminal.
func onTerminal(tty bool) (a *app, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &app{stdout: stdout, stderr: stderr, tty: tty, errTTY: tty, now: func() time.Time { return noon }}, stdout, stderr
}

func view(state jobs.State, change func(*engine.View)) engine.View {
	v := engine.View{State: state, AsOf: noon, Record: &jobs.Record{
		Spec:     jobs.Spec{ID: "01890000-0000-7000-8000-0123456789ab", Name: "a job", Created: noon.Add(-90 * time.Second), Place: jobs.Place{Scheduler: "slurm", Backend: "singularity", Level: jobs.LevelFS}},
		Attempts: []jobs.Attempt{{N: 1, Dir: "/b/0001", Submitted: &jobs.Submitted{Handle: jobs.Handle{NativeID: "17"}}}},
	}}
	if change != nil {
		change(&v)
	}
	return v
}

func TestListOnTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	a, out, errs := onTerminal(true)
	views := []engine.View{
		view(jobs.StateRunning, func(v *engine.View) { v.Attempts[0].Claim = &jobs.Claim{Host: "node1"}; v.Cancel = &jobs.Cancel{} }),
		view(jobs.StatePending, func(v *engine.View) { v.Status.Reason = "Resources"; v.Spec.Name = "b\x1b[31m\tc\u009b" }),
		view(jobs.StatePending, func(v *engine.View) { v.Status.Reason = "None" }),
	}
	if err := a.list(views); err != nil {
		t.Fatal(err)
	}
	want := "ID        STATE                 NAME       SCHEDULER  NODE   SUBMITTED\n" +
		"456789ab  running (cancelling)  a job      slurm 17   node1  1m ago\n" +
		"456789ab  pending (Resources)   b [31m c   slurm 17   -      1m ago\n" +
		"456789ab  pending               a job      slurm 17   -      1m ago\n"
	if got := out.String(); got != want || errs.Len() > 0 {
		t.Errorf("got:\n%s\nwant:\n%s\nstderr: %s", got, want, errs)
	}
}

func TestListOfNothing(t *testing.T) {
	for tty, want := range map[bool]string{true: "berth: no jobs\n", false: ""} {
		a, out, errs := onTerminal(tty)
		if err := a.list(nil); err != nil || out.Len() > 0 || errs.String() != want {
			t.Errorf("terminal %v: %v, %q, %q", tty, err, out, errs)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m",
		time.Hour: "1h", 47 * time.Hour: "47h", 48 * time.Hour: "2d", 1000 * time.Hour: "41d",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%v) = %q, want %q", d, got, want)
		}
	}
	a, _, _ := onTerminal(true)
	if got := a.when(time.Time{}); got != "-" {
		t.Errorf("no time is %q", got)
	}
	for d, want := range map[time.Duration]string{-time.Hour: "1h ago", 900 * time.Millisecond: "0s ago", 14 * 24 * time.Hour: "in 14d"} {
		if got := a.when(a.now().Add(d)); got != want {
			t.Errorf("%v from now is %q, want %q", d, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, want, json string
		err              error
		code             int
	}{
		{name: "nothing", code: 0},
		{name: "said already", err: exitCode(9), code: 9},
		{name: "plain", err: errors.New("oh"), code: 5, want: "berth: error: oh\n",
			json: "{\n  \"error\": {\n    \"exit_code\": 5,\n    \"hint\": \"\",\n    \"message\": \"oh\"\n  },\n  \"schema_version\": 1\n}\n"},
		{name: "several lines", err: &jobs.Error{Kind: jobs.KindUsage, Msg: "a:1: x\na:2: y\x1b[0m", Hint: "mend\x07 it"}, code: 2,
			want: "berth: error: a:1: x\nberth: error: a:2: y [0m\nberth: hint: mend  it\n"},
		{name: "interrupted", err: fmt.Errorf("wait: %w", context.Canceled), code: 130, want: "berth: interrupted\n",
			json: "{\n  \"error\": {\n    \"exit_code\": 130,\n    \"hint\": \"\",\n    \"message\": \"interrupted\"\n  },\n  \"schema_version\": 1\n}\n"},
		{name: "interrupted and unclear", err: &jobs.Error{Kind: jobs.KindUnclear, Msg: "maybe", Err: context.Canceled, Hint: "look"}, code: 5,
			want: "berth: error: maybe: context canceled\nberth: hint: look\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, out, errs := onTerminal(false)
			if got := a.report(c.err); got != c.code || errs.String() != c.want || out.Len() > 0 {
				t.Errorf("code %d, stderr %q, stdout %q", got, errs, out)
			}
			if c.json == "" {
				return
			}
			a, out, errs = onTerminal(false)
			a.json = true
			if got := a.report(c.err); got != c.code || out.String() != c.json || errs.Len() > 0 {
				t.Errorf("as JSON: code %d, %q, stderr %q", got, out, errs)
			}
		})
	}
}

// What a verb has found and what went wrong are one object, as they were written.
func TestReportOfObject(t *testing.T) {
	a, out, errs := onTerminal(false)
	a.json = true
	if err := a.printJSON(map[string]any{"left": []string{"<a> & b"}}); err != nil {
		t.Fatal(err)
	}
	code := a.report(&jobs.Error{Kind: jobs.KindInfra, Msg: "not all", Hint: "berth env show <NAME> && more"})
	var got struct {
		Left   []string
		Error  struct{ Message, Hint string }
		Schema int `json:"schema_version"`
	}
	dec := json.NewDecoder(strings.NewReader(out.String()))
	if err := dec.Decode(&got); err != nil || dec.More() || code != 5 || len(got.Left) != 1 || got.Error.Message != "not all" || got.Schema != 1 || errs.Len() > 0 {
		t.Errorf("%v, code %d, stderr %q: %s", err, code, errs, out)
	}
	for _, text := range []string{"<a> & b", "<NAME> && more"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q is not there as it is: %s", text, out)
		}
	}
}

func TestWarnOnce(t *testing.T) {
	a, _, errs := onTerminal(false)
	blind := func(v *engine.View) { v.AskError = errors.New("no answer") }
	a.warn([]engine.View{view(jobs.StateRunning, blind), view(jobs.StatePending, blind), view(jobs.StatePending, nil)})
	if got := strings.Count(errs.String(), "warning"); got != 1 {
		t.Errorf("%d warnings: %s", got, errs)
	}
}

// A branch that only the record has is said to be there, with all that status
// prints about a result.
func TestDetailOfResult(t *testing.T) {
	a, _, _ := onTerminal(true)
	v := view(jobs.StateCompleted, func(v *engine.View) {
		v.AskError = errors.New("no answer")
		v.Attempts[0].Exit = &jobs.ExitRecord{State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Started: noon, Ended: noon, MaxRSS: 3*jobs.MiB + 1, OOMKills: 1,
			Result: &jobs.Result{Branch: "berth/x/1", Commit: "c", Files: 1, Insertions: 2, OutOfScope: []string{"a\nb"}, Skipped: 3},
			Done:   []jobs.DoneResult{{Command: jobs.Command{Argv: []string{"go", "test"}}, Exit: jobs.Exit{Error: "no such file"}}}, Artifacts: []string{"out.csv"}}
	})
	got := map[string]string{}
	for _, row := range a.detail(viewJSON(v)) {
		got[row[0]] = row[1]
	}
	for label, want := range map[string]string{
		"branch": "berth/x/1 (not in the repository yet; kept in /b/0001/result.bundle)", "changes": "1 file, +2 -0 lines", "diff": "/b/0001/diff.patch",
		"out of scope": "a\nb", "left out": "3 paths; the reasons are in /b/0001/manifest.json", "done": "go test: did not start: no such file",
		"artifact": "/b/0001/artifacts/out.csv", "peak memory": "4MiB", "ended": "0s ago", "as of": "0s ago",
	} {
		if got[label] != want {
			t.Errorf("%s: %q, want %q", label, got[label], want)
		}
	}
}

func TestNameOfCommand(t *testing.T) {
	for word, want := range map[string]string{"pytest -x": "pytest", "/usr/bin/python3": "python3", "  \t": "command", "./a/b.sh x": "b.sh"} {
		if got := nameOf([]string{word, "-v"}); got != want {
			t.Errorf("nameOf(%q) = %q, want %q", word, got, want)
		}
	}
	for text, want := range map[string]string{
		"hostname; id": "hostname", "for f in *.gz; do gunzip $f; done": "gunzip", "umask; id": "id", "umask": "umask", "cd src && make -j4": "make",
		"A=1 B='x' ./run.sh": "run.sh", "if [ -f x ]; then python3 x; fi": "python3", "(sleep 1)": "sleep", "{ date; }": "date", "! grep -q x y": "grep",
		"$CMD x; ls": "ls", `"my prog" x`: "my", "while read x; do echo $x; done": "read", ";;": "command", "'quoted/path' a": "path", "exit 3": "exit",
		"set -eu\ntorchrun train.py": "torchrun", "time ./a.out | tee log": "a.out", "module load cuda; nvcc x.cu": "nvcc", "\"\"": "command",
	} {
		if got := nameOf([]string{text}); got != want {
			t.Errorf("nameOf(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestDoctorList: on a terminal what is to be done comes first, and no line is
// longer than the terminal is wide.
func TestDoctorList(t *testing.T) {
	a, out, _ := onTerminal(true)
	finding := func(status doctor.Status, subject, why, do string) doctor.Finding {
		return doctor.Finding{Status: status, Configured: subject == "conf", Subject: subject, Why: why, Do: do}
	}
	if err := a.doctorList([]doctor.Line{
		{Where: "both", Finding: finding(doctor.OK, "git", "git 2.39", "")},
		{Where: "here", Finding: finding(doctor.Warn, "purge", "it looks like scratch, which sites purge after some weeks; their scripts cannot be read", "ask the site")},
		{Where: "node c1", Finding: finding(doctor.Fail, "conf", "/etc/apptainer/apptainer.conf:12: user bind control = no", "ask the site to allow it, or name another container program \x1b[31m in the configuration")},
	}); err != nil {
		t.Fatal(err)
	}
	want := `TO DO FIRST: berth is to use this, and it fails
  fail  conf (node c1): /etc/apptainer/apptainer.conf:12: user bind control = no
        -> ask the site to allow it, or name another container program  [31m in
           the configuration

TO DO, where it matters to you
  warn  purge: it looks like scratch, which sites purge after some weeks; their
        scripts cannot be read
        -> ask the site

THE REST
  ok    git: git 2.39
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTableInColour(t *testing.T) {
	a, out, _ := onTerminal(true)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	rows := [][]string{{"ä1", "failed (exit code 3)", "failed"}, {"b22", "running", "x"}, {"c", "completed (out of scope)", "x"}, {"d", "completed", "x"}}
	if err := a.table([]string{"ID", "STATE", "NAME"}, rows); err != nil {
		t.Fatal(err)
	}
	want := "ID   STATE                     NAME\n" +
		"ä1   \x1b[31mfailed (exit code 3)\x1b[0m      failed\n" +
		"b22  \x1b[36mrunning\x1b[0m                   x\n" +
		"c    \x1b[33mcompleted (out of scope)\x1b[0m  x\n" +
		"d    \x1b[32mcompleted\x1b[0m                 x\n"
	if got := out.String(); got != want {
		t.Errorf("%q", got)
	}
	t.Setenv("NO_COLOR", "1")
	out.Reset()
	if err := a.table([]string{"ID", "STATE", "NAME"}, rows); err != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q %v", out, err)
	}
}

func TestScreen(t *testing.T) {
	out, notes := bytes.NewBufferString("1\n2\n3\n4\n5\n"), bytes.NewBufferString("note\n")
	for height, want := range map[int]string{0: "1 2 3 4 5 note foot", 7: "1 2 3 4 5 note foot", 5: "1 2 and 3 more lines note foot", 2: "and 5 more lines foot"} {
		shown := screen(out, notes, "foot", height)
		for _, control := range []string{"\x1b[H", "\x1b[?7l", "\x1b[?7h", "\x1b[K", "\x1b[J"} {
			shown = strings.ReplaceAll(shown, control, "")
		}
		if got := strings.ReplaceAll(shown, "\n", " "); got != want {
			t.Errorf("height %d: %q", height, got)
		}
	}
}

// A watched verb fails at once; what goes wrong later is shown, and may pass.
func TestAgain(t *testing.T) {
	a, out, errs := onTerminal(true)
	bad := errors.New("trouble")
	if err := a.again(t.Context(), time.Hour, func() error { return bad }); !errors.Is(err, bad) || out.Len() > 0 || errs.Len() > 0 {
		t.Errorf("%v %q %q", err, out, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	times := 0
	err := a.again(ctx, time.Microsecond, func() error {
		switch times++; times {
		case 2:
			return bad
		case 4:
			cancel()
		}
		_, err := fmt.Fprintf(a.stdout, "look %d\n", times)
		return err
	})
	for _, want := range []string{"look 1", "berth: error: trouble", "look 3", "every 1µs, 12:00:00; ctrl-C ends"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if err != nil || errs.Len() > 0 || strings.Contains(out.String(), "look 4") {
		t.Errorf("%v %q %q", err, errs, out)
	}
}
