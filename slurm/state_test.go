package slurm

import (
	"os"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/jobstest"
)

// Every word says what it means, and what it says of the kind of trouble is what
// the decisions rest on.
func TestEveryStateHasAMeaning(t *testing.T) {
	for w, m := range states {
		if m.plain == "" {
			t.Errorf("%s says nothing", w)
		}
		if want := jobstest.Classes[w]; m.class != want {
			t.Errorf("%s is of class %q, want %q", w, m.class, want)
		}
		if m.state == jobs.StateError && m.help == "" {
			t.Errorf("%s: what helps?", w)
		}
	}
}

// testdata/reasons.txt has the names of all reasons, from 22.05 to 26.05.
func TestEveryReasonHasAMeaning(t *testing.T) {
	data, err := os.ReadFile("testdata/reasons.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(data))
	for _, n := range names {
		r, ok := reasonOf(n)
		if !ok || r.plain == "" {
			t.Errorf("%s means nothing", n)
		}
		if r.help == "" {
			t.Errorf("%s: what helps?", n)
		}
		if !strings.Contains(n, "Unknown") && strings.Contains(r.plain, "some resource") {
			t.Errorf("%s: %s", n, r.plain)
		}
	}
	for n := range reasons {
		if n != "requeued held" && !slices.Contains(names, n) {
			t.Errorf("%s is no reason of Slurm's", n)
		}
	}
}

func TestReasonsInPlainWords(t *testing.T) {
	for said, want := range map[string]string{
		"AssocGrpCpuLimit":                            "all jobs of its association (account and user) together have reached its limit on CPUs",
		"AssocGrpCPURunMinutesLimit":                  "all jobs of its association (account and user) together have reached its limit on CPUs of those that run, in minutes",
		"AssocMaxJobsLimit":                           "your jobs in its association (account and user) have reached the limit on running jobs",
		"AssocMaxWallDurationPerJobLimit":             "it asks for more wall time than its association (account and user) gives to a job",
		"QOSGrpGRES":                                  "all jobs of its QOS together have reached its limit on GPUs and other generic resources",
		"QOSMaxJobsPerUserLimit":                      "the jobs of a user in its QOS have reached the limit on running jobs",
		"QOSMaxMemoryPerJob":                          "it asks for more memory than its QOS gives to a job",
		"QOSMinGRES":                                  "it asks for less GPUs and other generic resources than its QOS wants for a job",
		"MaxCpuPerAccount":                            "the jobs of an account in its QOS have reached the limit on CPUs",
		"launch failed requeued held":                 "it could not be launched, was put back into the queue, and is held",
		"launch_failure_limit_exceeded_requeued_held": "it could not be launched, was put back into the queue, and is held",
	} {
		if r, ok := reasonOf(said); !ok || r.plain != want {
			t.Errorf("%s: %q, want %q", said, r.plain, want)
		}
	}
	if _, ok := reasonOf("NewIn2030"); ok {
		t.Error("a new reason is known")
	}
	if st := status("7", "PENDING", "NewIn2030"); st.Explanation != `waits: Slurm says "NewIn2030"` || st.State != jobs.StatePending {
		t.Errorf("%+v", st)
	}
	st := status("7", "PENDING", "ReqNodeNotAvail, UnavailableNodes:c[1-2]")
	if want := "waits: nodes that it needs are down, drained or reserved (UnavailableNodes:c[1-2])"; st.Explanation != want || !strings.Contains(st.Hint, "sinfo -R") {
		t.Errorf("%+v", st)
	}
	for said, want := range map[string]string{
		"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": "sinfo -R",
		"Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved":                                        "sinfo -R",
		"Job's account not permitted to use this partition (gpu allows a not b)":                      "name another account",
	} {
		if st := status("7", "PENDING", said); !strings.Contains(st.Hint, want) || strings.Contains(st.Explanation, "Slurm says") {
			t.Errorf("%s: %+v", said, st)
		}
	}
	if st := status("7", "CANCELLED", "DependencyNeverSatisfied"); !strings.Contains(st.Explanation, "failed") {
		t.Errorf("%+v", st)
	}
}

// What no one could satisfy ends as FAILED, too, and would again.
func TestFailedForNever(t *testing.T) {
	st := status("17", "FAILED", "BadConstraints")
	if st.Class != jobs.ClassPolicy || !strings.Contains(st.Explanation, "no node has what it asks for") || st.Hint == "" {
		t.Errorf("%+v", st)
	}
	if st := status("17", "FAILED", "NonZeroExitCode"); st.Class != "" {
		t.Errorf("%+v", st)
	}
}
