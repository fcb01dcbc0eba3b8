package templates_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/images"
	"berth/jobs"
	"berth/templates"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What is built in can be read, begins with an image of a registry, and fits
// into a definition.
func TestBuiltIn(t *testing.T) {
	list, err := templates.Workspaces("")
	if err != nil || len(list) != 8 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, w := range list {
		if !strings.HasPrefix(w.Image, "docker://") || w.Description == "" || w.Origin() != "built in" || w.Resources != (jobs.Resources{}) {
			t.Errorf("%+v", w)
		}
		def := w.Definition("/cache/base.sif")
		if h := images.ReadHeader([]byte(def)); h.Bootstrap != "localimage" || h.From != "/cache/base.sif" || h.Local {
			t.Errorf("%+v in %s", h, def)
		}
		if !strings.Contains(def, "\n%post\n") || strings.Count(def, "\n%") != 1 {
			t.Error(def)
		}
	}
	for _, word := range []string{"python3", "nodejs", "git", "ripgrep", "jq", "gh", "curl"} {
		if w, err := templates.FindWorkspace("", "default"); err != nil || !strings.Contains(w.Bootstrap, " "+word) {
			t.Errorf("%s is not in the template default: %v", word, err)
		}
	}
}

const own = `description = "mine"
image = "/images/base.sif"
env = ["GITHUB_TOKEN"]
bootstrap = '''
echo here
'''
[resources]
cpus = 2
memory = "4GiB"
disk = 2048
time = "2h"
`

func TestOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "templates")
	w, err := templates.ReadWorkspace(write(t, t.TempDir(), "mine.toml", own), "mine")
	if err != nil {
		t.Fatal(err)
	}
	want := jobs.Resources{CPUs: 2, Memory: 4 * jobs.GiB, Disk: 2 * jobs.GiB, Time: 2 * time.Hour}
	if w.Image != "/images/base.sif" || w.Bootstrap != "echo here" || len(w.Env) != 1 || w.Resources != want {
		t.Errorf("%+v", w)
	}
	file, err := templates.AddWorkspace(dir, w, false)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := templates.AddWorkspace(dir, w, false); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(jobs.HintOf(err), "--force") {
		t.Error(err)
	}
	if _, err := templates.AddWorkspace(dir, w, true); err != nil {
		t.Error(err)
	}
	if got, err := templates.FindWorkspace(dir, "mine"); err != nil || got.File != file || string(got.Text) != own {
		t.Errorf("%+v, %v", got, err)
	}
	// One's own takes the place of what is built in.
	w.Name = "minimal"
	if _, err := templates.AddWorkspace(dir, w, false); err != nil {
		t.Error(err)
	}
	if got, err := templates.FindWorkspace(dir, "minimal"); err != nil || got.Description != "mine" {
		t.Errorf("%+v, %v", got, err)
	}
	write(t, dir, "bad.toml", "image = 3\n")
	list, err := templates.Workspaces(dir)
	if len(list) != 9 || err == nil || !strings.Contains(err.Error(), "bad.toml:1") {
		t.Errorf("%d, %v", len(list), err)
	}
	for _, name := range []string{"mine", "minimal"} {
		if err := templates.RemoveWorkspace(dir, name); err != nil {
			t.Error(err)
		}
	}
	if err := templates.RemoveWorkspace(dir, "minimal"); jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error(), "built into") {
		t.Error(err)
	}
	if err := templates.RemoveWorkspace(dir, "mine"); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestRefusedWorkspaces(t *testing.T) {
	const head = "image = \"docker://debian:12\"\n"
	for text, want := range map[string]string{
		"":                                `missing key "image"`,
		"base = \"x\"\n" + head:           `did you mean "image"`,
		"image = \"x.sif\"\n":             "from / on",
		head + "env = [\"A=b\"]\n":        "gives a value",
		head + "env = [\"A-B\"]\n":        "not the name of a variable",
		head + "[resources]\ngpus = 1\n":  "is the task's to say",
		head + "[resources]\nmem = 1\n":   `did you mean "memory"`,
		head + "bootstrap = \"#!/bin/x\"": "begins with #!",
		head + "bootstrap = \"\"\"\ntrue\n %environment\n\"\"\"":      "its line 2",
		head + "bootstrap = \"\"\"\ntrue\nexport A_TOKEN=xyz\n\"\"\"": "x.toml:4 holds what looks like a secret, a value of A_TOKEN",
		"# ghp_" + strings.Repeat("a", 36) + "\n" + head:              "x.toml:1 holds what looks like a secret",
		head + "bootstrap = \"echo \\u001b\"":                         "control character",
	} {
		_, err := templates.ReadWorkspace(write(t, t.TempDir(), "x.toml", text), "x")
		if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(err.Error()+jobs.HintOf(err), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	for _, name := range []string{"", "../x", "a b", "A", strings.Repeat("a", 65)} {
		if _, err := templates.FindWorkspace(t.TempDir(), name); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := templates.FindWorkspace("", "defualt"); jobs.CodeOf(err) != jobs.CodeNotFound || !strings.Contains(err.Error(), `did you mean "default"`) {
		t.Error(err)
	}
}
