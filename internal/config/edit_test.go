package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// TestSetEveryKey: what set writes is what holds then, and unset takes it back.
func TestSetEveryKey(t *testing.T) {
	const before = "# first\n" + "target = \"pond\" # one\n\n# the terminal\n[terminal]\n# nothing\n\n" + twoTargets
	for _, k := range usable() {
		t.Run(k.Name, func(t *testing.T) {
			w := newWorld(t)
			s := sampleOf(t, k)
			w.write(t, w.user, before)
			if k.Secret {
				if _, err := Set(w.src, false, k.Name, "x"); jobs.CodeOf(err) != 2 || !strings.Contains(jobs.HintOf(err), k.Env[0]) {
					t.Errorf("%v", err)
				}
				return
			}
			for _, text := range []string{s.text[0], s.text[1]} {
				if _, err := Set(w.src, false, k.Name, text); err != nil {
					t.Fatal(err)
				}
				v, err := w.load(t).Lookup(k.Name)
				if err != nil || shown(v.V) != valueOf(t, k, text) && k.Name != "terminal.backend" { // the target's is above it
					t.Errorf("%s: %s, %v", text, shown(v.V), err)
				}
			}
			if _, was, err := Unset(w.src, false, k.Name); err != nil || !was {
				t.Errorf("%v, %v", was, err)
			}
			data, err := os.ReadFile(w.user)
			if err != nil {
				t.Fatal(err)
			}
			want := before
			if k.Name == "target" {
				want = strings.Replace(want, "target = \"pond\" # one\n", "", 1)
			} else if k.table() != "" && k.table() != "terminal" {
				want += "\n[" + k.table() + "]\n"
			}
			if string(data) != want {
				t.Errorf("%s", data)
			}
			if fi, err := os.Stat(w.user); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", fi.Mode(), err)
			}
		})
	}
}

func TestSetBad(t *testing.T) {
	w := newWorld(t)
	set := func(project bool, key, value string, want ...string) {
		t.Helper()
		before, _ := os.ReadFile(w.user)
		_, err := Set(w.src, project, key, value)
		if err == nil {
			t.Errorf("%s = %s is written", key, value)
			return
		}
		for _, s := range want {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("no %q in: %v", s, err)
			}
		}
		if after, _ := os.ReadFile(w.user); string(before) != string(after) {
			t.Errorf("the file has changed: %s", after)
		}
	}
	w.write(t, w.user, "x = 1\n")
	set(false, "terminal.timeout", "5", "unknown key")
	w.write(t, w.user, "[terminal\n")
	set(false, "terminal.timeout", "5", "not valid TOML")
	w.write(t, w.user, twoTargets)
	set(false, "terminal.timout", "5", "did you mean terminal.timeout?")
	set(false, "timeout", "5", "did you mean terminal.timeout?")
	set(false, "terminal.timeout", "soon", "terminal.timeout")
	set(false, "terminal.timeout", "", "is empty")
	set(false, "terminal.container_memory", "4GB", "did you mean 4GiB")
	set(false, "terminal.cwd", "a\x1b[2J", "control character")
	set(false, "targets.lake.bakend", "docker", "did you mean targets.lake.backend?")
	set(false, "targets.LAKE.backend", "docker", "not the name of a target")
	set(false, "targets.lake.backend", "ssh", `must not be "ssh" with the scheduler`)
	set(false, "targets.pond.host", "h", "goes with the scheduler slurm or the backend ssh")
	set(false, "targets.lake.max.cpus", "1", "unknown key")
	set(false, `projects."/x".allow`, "path", `did you mean "paths"?`)
	set(false, `projects."x".allow`, "paths", "full path")
	set(false, "targets", "1", "a table of them")
	set(false, "targets.lake", "1", "a table of them")
	set(false, "terminal.backend", "apptainer", `did you mean "singularity"?`)
	set(false, "targets.pond.backend", "podman", `did you mean "docker"?`)
	set(false, "terminal.backend", "vercel_sandbox", "no backend for Vercel")
	set(false, "terminal.backend", "bubblewrap", "no backend bubblewrap")
	set(false, "a..b", "1", "is not a key")
	set(true, "terminal.backend", "local", "a project's file may not do that")
	set(true, "terminal.docker_volumes", "/:/host", "a project's file may not do that")
	set(true, "max.cpus", "3", "your own")
	set(true, "target", "nowhere", "there is no target")
	if _, err := os.Lstat(w.proj); err == nil {
		t.Error("the project's file was made")
	}
	if _, err := Set(w.src, true, "terminal.docker_image", "debian:12"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(w.proj); err != nil || string(data) != "[terminal]\ndocker_image = \"debian:12\"\n" {
		t.Errorf("%s, %v", data, err)
	}
	for _, k := range [][2]string{{"targets.new.scheduler", "slurm"}, {"targets.new.host", "ada@login"}, {"targets.new.resources.memory", "8GiB"}, {`projects."~/src".allow`, "paths,env"}} {
		if _, err := Set(w.src, false, k[0], k[1]); err != nil {
			t.Error(err)
		}
	}
	c := w.load(t)
	for key, want := range map[string]string{"targets.new.host": "ada@login", "targets.new.scheduler": "slurm", "targets.new.resources.memory": "8GiB"} {
		if v, err := c.Lookup(key); err != nil || shown(v.V) != want {
			t.Errorf("%s: %v, %v", key, v.V, err)
		}
	}
}

// A link to the user's file stays one.
func TestSetThroughLink(t *testing.T) {
	w := newWorld(t)
	real := w.user + ".real"
	w.write(t, real, "# here\n")
	if err := os.Symlink(real, w.user); err != nil {
		t.Fatal(err)
	}
	if _, err := Set(w.src, false, "terminal.timeout", "5"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(real)
	if fi, lerr := os.Lstat(w.user); err != nil || lerr != nil || fi.Mode().IsRegular() || !strings.Contains(string(data), "timeout = 5") {
		t.Errorf("%s, %v, %v", data, err, lerr)
	}
}

// TestSetReadOnly: what someone has made read-only, or leads nowhere, is not
// replaced.
func TestSetReadOnly(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, "# mine\n")
	if err := os.Chmod(w.user, 0o400); err != nil {
		t.Fatal(err)
	}
	_, err := Set(w.src, false, "terminal.timeout", "5")
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "read-only") {
		t.Error(err)
	}
	if data, err := os.ReadFile(w.user); err != nil || string(data) != "# mine\n" {
		t.Errorf("%s, %v", data, err)
	}
	w.write(t, w.proj, "")
	if err := os.Chmod(w.proj, 0o444); err != nil { //nolint:gosec // as git has it
		t.Fatal(err)
	}
	if _, err := Set(w.src, true, "terminal.timeout", "5"); jobs.KindOf(err) != jobs.KindConfig {
		t.Error(err)
	}
	// Nor is one written that would be left out.
	if err := errors.Join(os.Remove(w.proj), os.Chmod(filepath.Dir(w.proj), 0o777)); err != nil { //nolint:gosec // that is what is tried
		t.Fatal(err)
	}
	if _, err := Set(w.src, true, "terminal.timeout", "5"); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "would not be read") {
		t.Error(err)
	}
	if _, err := os.Lstat(w.proj); err == nil {
		t.Error("it was written")
	}
	if err := os.Remove(w.user); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", w.user); err != nil {
		t.Fatal(err)
	}
	if _, err := Set(w.src, false, "terminal.timeout", "5"); jobs.KindOf(err) != jobs.KindConfig {
		t.Error(err)
	}
	if !isLink(w.user) {
		t.Error("the link was replaced")
	}
}

// FuzzRead: whatever stands in a file, reading it ends, and with an error that
// is the user's or with values.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "[terminal]\nbackend = \"local\"\n", twoTargets, "[projects.\"/x\"]\nallow = [\"paths\"]\n", "target = \"lake\"\n" + twoTargets, "[terminal]\ndocker_env = {A = \"b\"}\nbind = [\"/a:/b\", \"/c:ro\"]\n", "[[targets]]\n", "targets = 3\nprojects = []\n", "[targets.x]\nhost=\"h\"\nssh_key=\"~\"\n[targets.x.terminal]\nssh_host=\"h\"\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, layer := range []string{layerUser, layerProject} {
			file, err := parse("/home/ada/x.toml", []byte(s), layer)
			if err != nil {
				if jobs.KindOf(err) != jobs.KindUsage || err.Error() == "" {
					t.Fatalf("%v", err)
				}
				continue
			}
			for name, v := range file.values {
				if v.V == nil || v.Key.Name != name || v.line < 1 {
					t.Fatalf("%+v", v)
				}
				if jobs.CheckText("", v.String()) != nil {
					t.Fatalf("%q", v.String())
				}
			}
			if layer == layerProject && len(file.targets)+len(file.projects) > 0 {
				t.Fatal("a project's file has targets")
			}
			c := &Config{user: file}
			if layer == layerProject {
				c = &Config{project: file}
			}
			_ = c.settle(nil, nil)
		}
	})
}
