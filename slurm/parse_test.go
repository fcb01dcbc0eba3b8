package slurm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/jobs"
	"berth/slurm/site"
)

var update = flag.Bool("update", false, "write the golden files")

// Each file of testdata is what one real Slurm printed; its name ends in the
// version. What is read from it stands beside it.
func TestParseCaptured(t *testing.T) {
	for pattern, parse := range map[string]func(string) []row{"testdata/squeue-*.txt": parseQueue, "testdata/sacct-*.txt": parseAcct} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				rows := parse(string(data))
				if lines := strings.Count(strings.TrimSpace(string(data)), "\n") + 1; len(rows) != lines {
					t.Errorf("%d rows from %d lines", len(rows), lines)
				}
				var b strings.Builder
				for _, r := range rows {
					st := r.status
					if st.State == "" {
						t.Errorf("job %s: %q is not known", r.id, st.NativeState)
					}
					fmt.Fprintf(&b, "%s %s: %s (%s) code %d signal %d on %q since %s\n", r.id, r.name, st.State, st.NativeState, st.Code, st.Signal, st.Node, st.Start.Format(time.RFC3339))
					if st.Reason+st.Hint != "" {
						fmt.Fprintf(&b, "  reason: %s\n  hint: %s\n", st.Reason, st.Hint)
					}
				}
				golden := strings.TrimSuffix(file, ".txt") + ".golden"
				if *update {
					if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), b.String()); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestConfigCaptured(t *testing.T) {
	files, err := filepath.Glob("testdata/config-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no captured configuration", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config := site.Config(string(data))
		if d, ok := site.Seconds(config["KillWait"]); !ok || d <= 0 {
			t.Errorf("%s: KillWait %q", file, config["KillWait"])
		}
		if _, ok := config["AccountingStorageType"]; !ok {
			t.Errorf("%s: no AccountingStorageType", file)
		}
	}
}

func TestWords(t *testing.T) {
	for printed, want := range map[string]jobs.State{
		"PENDING": jobs.StatePending, "CONFIGURING": jobs.StatePending, "REQUEUE_HOLD": jobs.StatePending,
		"RUNNING": jobs.StateRunning, "COMPLETING": jobs.StateRunning, "SUSPENDED": jobs.StateRunning, "STAGE_OUT": jobs.StateRunning,
		"COMPLETED": jobs.StateCompleted, "FAILED": jobs.StateFailed, "TIMEOUT": jobs.StateTimeout,
		"CANCELLED": jobs.StateCancelled, "CANCELLED by 1000": jobs.StateCancelled, "CANCELLED+": jobs.StateCancelled,
		"OUT_OF_MEMORY": jobs.StateOutOfMemory, "OUT_OF_ME+": jobs.StateOutOfMemory,
		"NODE_FAIL": jobs.StateError, "BOOT_FAIL": jobs.StateError, "PREEMPTED": jobs.StateError, "DEADLINE": jobs.StateError,
		"REVOKED": "", "NEW_IN_2030": "", "": "", "+": "", "RE+": "", "RUNNING_AWAY": "",
	} {
		if got := status("1", printed, "None"); got.State != want {
			t.Errorf("%q is %q, want %q", printed, got.State, want)
		}
	}
}

func TestHints(t *testing.T) {
	for _, c := range []struct{ word, reason, want string }{
		{"PENDING", "JobHeldUser", "scontrol release 42"},
		{"PENDING", "launch failed requeued held", "scontrol release 42"},
		{"SPECIAL_EXIT", "None", "scontrol release 42"},
		{"PENDING", "JobHeldAdmin", "administrators"},
		{"PENDING", "DependencyNeverSatisfied", "cancel it"},
		{"PENDING", "PartitionTimeLimit", "less"},
		{"PENDING", "ReqNodeNotAvail, UnavailableNodes:c[1-2]", "sinfo"},
		{"PENDING", "Resources", "explain"},
		{"PENDING", "Priority", "explain"},
		{"PENDING", "Prolog", "scontrol show job 42"},
		{"RUNNING", "None", ""},
		{"NODE_FAIL", "None", "submit it again"},
		{"PREEMPTED", "None", "submit it again"},
	} {
		got := status("42", c.word, c.reason).Hint
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.word, c.reason, got, c.want)
		}
	}
	if got := status("42", "PREEMPTED", "None").Reason; got == "" {
		t.Error("an end that is nobody's fault has no reason")
	}
}

func FuzzParseQueue(f *testing.F) {
	f.Add("7|RUNNING|0:0|2026-11-21T11:00:00|c1|berth-a-0|None|\n")
	f.Add("7|CANCELLED by 0|0:15|N/A||x|ReqNodeNotAvail, UnavailableNodes:a|b|\n")
	f.Add("|||||||\n\x00|")
	f.Fuzz(func(t *testing.T, out string) {
		for _, rows := range [][]row{parseQueue(out), parseAcct(out)} {
			for _, r := range rows {
				if !isID(r.id) || r.status.Code < 0 || r.status.Signal < 0 || strings.Contains(r.name, "|") || strings.Contains(r.name, "\n") {
					t.Errorf("%+v from %q", r, out)
				}
			}
		}
	})
}

func FuzzParseSubmitted(f *testing.F) {
	f.Add("*** hello ***\n12;c\n")
	f.Add("0\n")
	f.Fuzz(func(t *testing.T, out string) {
		id, cluster, ok := parseSubmitted(out)
		if ok && (strings.Trim(id, "0123456789") != "" || id == "" || !strings.Contains(out, id) || strings.ContainsAny(cluster, " \n")) {
			t.Errorf("%q, %q from %q", id, cluster, out)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add("KillWait                = 30 sec\nA = b = c\n=\n")
	f.Fuzz(func(t *testing.T, out string) {
		for name, value := range site.Config(out) {
			if name == "" {
				t.Error("a setting without a name")
			}
			if d, ok := site.Seconds(value); ok && d < 0 {
				t.Error(value, d)
			}
		}
	})
}
