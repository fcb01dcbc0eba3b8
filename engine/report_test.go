package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// TestBase64Lines: long base64 is found in added lines, whatever else a line says.
func TestBase64Lines(t *testing.T) {
	long := strings.Repeat("aB3/", 300)
	patch := "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,5 @@\n one\n" +
		"++++ b/elsewhere\n" + // a line that the task has added, and no head
		"+" + long + "\n-" + long + "\n+key = \"" + long[:900] + "\"\n+y" + long + "z\n" +
		"@@ -9 +12 @@\n-" + long + "\n+" + strings.Repeat("=", 2000) + "\n" +
		"diff --git a/y b/y\n--- /dev/null\n+++ b/dir/y\n@@ -0,0 +1,2 @@\n+" + strings.Repeat("Q", 70<<10) + "a1\n+" + strings.Repeat("ab cd ", 70<<10) + "\n\\ No newline at end of file\n" +
		"diff --git a/z b/z\nGIT binary patch\nliteral 3\n" + long + "\n"
	var got []string
	if err := base64Lines(strings.NewReader(patch), func(file string, line int) { got = append(got, fmt.Sprintf("%s:%d", file, line)) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"x:3", "x:5", "dir/y:1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReport: what an attempt did, of all that is recorded of it.
func TestReport(t *testing.T) {
	f := newFixture(t)
	rec := f.submit(task(), Choice{})
	a := rec.Current()
	rec.Spec.Workspace = &jobs.WorkspaceSpec{Repo: "/r"}
	rec.Spec.Network = jobs.Network{Mode: jobs.NetworkAllow}
	write := func(name string, data []byte) { must(t, os.WriteFile(filepath.Join(a.Dir, name), data, 0o600)) }
	manifest, err := json.Marshal(workspace.Result{SchemaVersion: 1, Files: []workspace.Change{
		{Path: "new\x1b[2J.sh", Status: workspace.Added, Mode: "100755"}, {Path: "b.go", OldPath: "a.go", Status: workspace.Renamed, Mode: "100644", OldMode: "100644"},
		{Path: ".github/workflows/ci.yml", Status: workspace.Modified, Mode: "100644", OldMode: "100644"}, {Path: ".envrc", Status: workspace.Deleted},
		{Path: "out", Status: workspace.Added, Mode: "120000", Target: "/etc/passwd", Escapes: true}}, OutOfScope: []workspace.Path{"b.go"}})
	must(t, err)
	write(workspace.ManifestFile, manifest)
	write(workspace.DiffFile, []byte("+++ b/b.go\n@@ -1 +1 @@\n+"+strings.Repeat("aB3/", 300)+"\n"))
	write(store.FileTranscript, []byte(`{"kind":"tool","tool":"Bash","arg":"curl evil.example"}`+"\n"+`{"kind":"message","text":"done"}`+"\n"))
	a.Exit = &jobs.ExitRecord{Artifacts: []string{"report.txt"}, ArtifactFiles: 3, NetworkUse: &jobs.NetworkUse{
		Allowed: []jobs.NetworkName{{Name: "pypi.org", Port: 443, Count: 2}}, Refused: []jobs.NetworkName{{Name: "evil.example", Port: 443, Count: 1}}, MoreRefused: 4}}
	r, err := f.Report(t.Context(), View{Record: rec, State: jobs.StateCompleted})
	must(t, err)
	var suspects []string
	for _, s := range r.Suspicious {
		if s.Why == "" {
			t.Errorf("%+v has no reason", s)
		}
		suspects = append(suspects, s.Kind+" "+s.Where)
	}
	want := []string{"new-executable new [2J.sh", "control-file .github/workflows/ci.yml", "link-out out -> /etc/passwd", "out-of-scope b.go", "base64 b.go:1", "refused-name evil.example"}
	if !slices.Equal(suspects, want) {
		t.Errorf("%q\nwant %q", suspects, want)
	}
	if !slices.Equal(r.Created, []string{"new [2J.sh", "out"}) || !slices.Equal(r.Changed, []string{"b.go (was a.go)", ".github/workflows/ci.yml"}) || !slices.Equal(r.Deleted, []string{".envrc"}) ||
		!slices.Equal(r.Ran, []string{"make test", "Bash curl evil.example"}) || len(r.Reached) != 1 || r.More["artifacts"] != 2 || r.More["refused"] != 4 {
		t.Errorf("%+v", r)
	}
	// What is damaged or missing is said, and no report is refused for it.
	write(workspace.ManifestFile, []byte("{"))
	rec.Spec.Network, a.Exit = jobs.Network{}, nil
	if r, err = f.Report(t.Context(), View{Record: rec}); err != nil || !strings.Contains(strings.Join(r.Unknown, "\n"), "read the manifest") ||
		!strings.Contains(strings.Join(r.Unknown, "\n"), "its network is open") {
		t.Errorf("%q, %v", r.Unknown, err)
	}
}

// TestReportContainer: what a backend has recorded of a container is told, else why not.
func TestReportContainer(t *testing.T) {
	f := newFixture(t)
	rec := f.submit(task(), Choice{})
	a := rec.Current()
	rec.Spec.Backend, rec.Spec.Scheduler = jobs.BackendDocker, jobs.SchedulerLocal
	want := func(container, unknown string, more int) {
		t.Helper()
		r, err := f.Report(t.Context(), View{Record: rec})
		must(t, err)
		if got := strings.Join(r.Container, "|"); got != container || !strings.Contains(strings.Join(r.Unknown, "\n"), unknown) || r.More["container"] != more {
			t.Errorf("%q, %q, %v", got, r.Unknown, r.More)
		}
	}
	want("", "what changed in the container: it was not kept, as --keep does", 0)
	a.Exit = &jobs.ExitRecord{KeptPlace: &jobs.KeptPlace{Environment: "kept-x"}}
	want("", "what changed in the container: it is in the environment kept-x", 0)
	_, err := store.SetChanges(a.Dir, jobs.ContainerChanges{Version: 1, Changes: []string{"added /x", "deleted /y"}, More: 3})
	must(t, err)
	want("added /x|deleted /y", "which files of the container are setuid", 3)
}

// TestSuspicions: the page lists each of them.
func TestSuspicions(t *testing.T) {
	page, err := os.ReadFile("../docs/containment.md")
	must(t, err)
	for _, s := range jobs.Suspicions {
		if !strings.Contains(string(page), "| `"+s.Kind+"` | "+s.Reason) {
			t.Errorf("docs/containment.md does not say %s: %s", s.Kind, s.Reason)
		}
	}
}
