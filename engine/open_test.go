package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

func TestOpen(t *testing.T) {
	home := filepath.Join(t.TempDir(), "state")
	t.Setenv("BERTH_HOME", home)
	if e, err := Open(t.Context(), Options{ReadOnly: true}); err != nil || e.Store.Home() != home {
		t.Error(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an engine that only plans has made %s: %v", home, err)
	}
	e, err := Open(t.Context(), Options{})
	must(t, err)
	if fi, err := os.Stat(home); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(fi, err)
	}
	if b := e.Program("daytona"); b == nil || b.Installed() != nil {
		t.Error("the backend that is built in is not installed")
	}
	if e.Program("no name") != nil {
		t.Error("a word that names no program has one")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Open(ended, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	must(t, os.Mkdir(filepath.Join(dir, "berth"), 0o700))
	file := filepath.Join(dir, "berth", "config.toml")
	must(t, os.WriteFile(file, []byte("scheduler = \"local\"\noffline = true\n[terminal]\nbackend = \"local\"\n"), 0o600))
	c, err := ReadConfig("")
	must(t, err)
	task := jobs.Task{Command: jobs.Words([]string{"true"})}
	choice, _, err := c.Task(&task)
	if err != nil || task.Backend != jobs.BackendLocal || task.Scheduler != jobs.SchedulerLocal || !choice.Offline {
		t.Errorf("%+v %+v, %v", task.Place, choice, err)
	}
	var o jobs.EnvOptions
	if err := c.Environment(&o); err != nil || o.EnvName() != jobs.BackendLocal || !o.Offline {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := Open(t.Context(), Options{Home: filepath.Join(dir, "state"), Config: c}); err != nil {
		t.Error(err)
	}
	must(t, os.WriteFile(file, []byte("no = key"), 0o600))
	if _, err := ReadConfig(""); jobs.CodeOf(err) == jobs.CodeOK {
		t.Error(err)
	}
}

// What a program plans with the configuration has no more than that allows: the network
// that a project's file shuts off.
func TestConfigNetwork(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	must(t, os.Mkdir(filepath.Join(home, "berth"), 0o700))
	must(t, os.WriteFile(filepath.Join(project, "berth.toml"), []byte("[terminal]\nnetwork = \"none\"\n"), 0o600))
	for dir, want := range map[string]jobs.Level{"": jobs.LevelFS, project: jobs.LevelEgress} {
		c, err := ReadConfig(dir)
		must(t, err)
		e, err := Open(t.Context(), Options{Home: filepath.Join(home, "state"), Config: c})
		must(t, err)
		task := jobs.Task{Name: "t", Command: jobs.Words([]string{"true"}), Reference: "docker://debian:12",
			Place: jobs.Place{Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendDocker}}
		choice, _, err := c.Task(&task)
		must(t, err)
		if s, err := e.Plan(t.Context(), task, choice, true); err != nil || s.Level != want {
			t.Errorf("%q: %v, %v", dir, s, err)
		}
	}
	// What would open anything is refused before that.
	must(t, os.WriteFile(filepath.Join(project, "berth.toml"), []byte("[terminal]\nbackend = \"local\"\n"), 0o600))
	if _, err := ReadConfig(project); jobs.KindOf(err) != jobs.KindConfig {
		t.Error(err)
	}
}
