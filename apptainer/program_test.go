package apptainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// program writes an executable that prints something.
func program(t *testing.T, dir, name, script string, mode os.FileMode) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+script+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	dirs := map[string]string{}
	for _, d := range []string{"empty", "ce", "both", "plain", "directory"} {
		dirs[d] = filepath.Join(dir, d)
	}
	ce := program(t, dirs["ce"], "singularity", "", 0o755)
	both := program(t, dirs["both"], "apptainer", "", 0o755)
	program(t, dirs["both"], "singularity", "", 0o755)
	program(t, dirs["plain"], "apptainer", "", 0o644)
	if err := os.MkdirAll(filepath.Join(dirs["directory"], "apptainer"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dirs["both"])
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"both"}, both},
		{[]string{"ce"}, ce},
		{[]string{"ce", "both"}, both}, // apptainer before singularity, wherever it is
		{[]string{"plain", "directory", "empty", "ce"}, ce},
		{[]string{"plain", "directory"}, ""},
		{[]string{".", "", "../both"}, ""}, // nothing from where we happen to be
		{nil, ""},
	} {
		var list []string
		for _, p := range c.path {
			if d, ok := dirs[p]; ok {
				p = d
			}
			list = append(list, p)
		}
		got, err := FindProgram(strings.Join(list, ":"))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: %s, %v; want %s", c.path, got, err, c.want)
		}
		if err != nil && (jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "module")) {
			t.Errorf("%v, hint %q", err, jobs.HintOf(err))
		}
	}
}

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]string{
		"apptainer version 1.4.5\n":               "1.4.5",
		"apptainer version 1.4.5-1.el9\n":         "1.4.5-1.el9",
		"apptainer version 1.5.0-rc.1+3-gabcdef":  "1.5.0-rc.1+3-gabcdef",
		"singularity-ce version 4.1.0-jammy\n":    "4.1.0-jammy",
		"singularity-pro version 4.1.6-1.el8\n":   "4.1.6-1.el8",
		"singularity version 3.8.7-1.el7\n":       "3.8.7-1.el7",
		"Welcome to n1\napptainer version 1.3\n!": "1.3",
		"apptainer version v1.4.5\n":              "1.4.5",
		"":                                        "", "\n": "", "1.4.5": "", "apptainer version": "", "apptainer version unknown": "",
		"Error for command \"--version\": unknown flag 2.0": "", "see apptainer version 1.4.5": "",
	} {
		if got := parseVersion(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestVersionAtLeast(t *testing.T) {
	for _, c := range []struct {
		version      string
		major, minor int
		want         bool
	}{
		{"1.2", 1, 2, true}, {"1.2.0", 1, 2, true}, {"1.10.3", 1, 2, true}, {"2.0.0", 1, 2, true}, {"1.4.5-1.el9", 1, 2, true},
		{"1.1.9", 1, 2, false}, {"0.9", 1, 2, false}, {"", 1, 2, false}, {"1", 1, 2, false}, {"x.y", 1, 2, false}, {"1.x", 1, 2, false}, {"v1.4", 1, 2, false},
	} {
		if got := versionAtLeast(c.version, c.major, c.minor); got != c.want {
			t.Errorf("%q at least %d.%d: %t", c.version, c.major, c.minor, got)
		}
	}
	for version, want := range map[string]string{"": "--pwd", "1.1.9": "--pwd", "1.2.0": "--cwd", "1.4.5": "--cwd", "2.6.1": "--pwd", "3.8.7": "--pwd", "3.11.4": "--pwd", "4.0.0": "--cwd", "4.1.0-jammy": "--cwd"} {
		if got := cwdFlag(version); got != want {
			t.Errorf("version %q: %s, want %s", version, got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	caller := map[string]string{
		"PATH": "/usr/bin", "HOME": "/home/alice", "USER": "alice", "LOGNAME": "alice", "LANG": "C.UTF-8", "TMPDIR": "/local", "LD_LIBRARY_PATH": "/opt/lib", "XDG_RUNTIME_DIR": "/run/user/1",
		"APPTAINER_BIND": "/", "APPTAINER_BINDPATH": "/", "SINGULARITY_BIND": "/", "SINGULARITY_BINDPATH": "/", "APPTAINER_CACHEDIR": "/x", "APPTAINERENV_TOKEN": "s", "SINGULARITYENV_TOKEN": "s",
		"http_proxy": "http://u:p@proxy", "HTTPS_PROXY": "http://u:p@proxy", "ALL_PROXY": "x", "no_proxy": "x", "SSH_AUTH_SOCK": "/s", "API_KEY": "s", "LD_PRELOAD": "/x.so", "SLURM_JOB_ID": "7", "BASH_ENV": "/x", "APPTAINER_DOCKER_PASSWORD": "s",
	}
	getenv := func(n string) string { return caller[n] }
	want := []string{"PATH=/usr/bin", "HOME=/home/alice", "USER=alice", "LOGNAME=alice", "LANG=C.UTF-8", "TMPDIR=/local", "XDG_RUNTIME_DIR=/run/user/1", "LD_LIBRARY_PATH=/opt/lib"}
	if d := cmp.Diff(want, Environ(getenv, "")); d != "" {
		t.Error(d)
	}
	want = append(want, "APPTAINER_CONFIGDIR=/s/config", "APPTAINER_CACHEDIR=/s/cache", "SINGULARITY_CACHEDIR=/s/cache")
	if d := cmp.Diff(want, Environ(getenv, "/s")); d != "" {
		t.Error(d)
	}
	if got := Environ(func(string) string { return "" }, ""); len(got) != 0 {
		t.Errorf("of nothing came %q", got)
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("APPTAINER_BIND", "/canary")
	b := &Backend{On: run.Local{}}
	for name, c := range map[string]struct {
		script string
		health jobs.Health
		text   string // in the version or the reason
	}{
		"healthy":         {`[ -z "$APPTAINER_BIND" ] && echo apptainer version 1.4.5`, jobs.Healthy, "1.4.5"},
		"does not run":    {`echo "FATAL: no setuid" >&2; exit 255`, jobs.Unhealthy, "no setuid"},
		"says nothing":    {`:`, jobs.Unhealthy, "no version"},
		"something else":  {`echo "usage: apptainer FILE"`, jobs.Unhealthy, "usage"},
		"missing modules": {"", jobs.Undetected, "on the PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if c.script != "" {
				program(t, dir, "apptainer", c.script, 0o755)
			}
			got := b.Check(t.Context())
			if got.Health != c.health || !strings.Contains(got.Version+got.Reason, c.text) || (got.Hint == "") != (c.health == jobs.Healthy) {
				t.Errorf("%+v", got)
			}
		})
	}
}
