package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

const hermesYAML = `# Hermes Agent
model:
  default: "anthropic/claude"
  temperature: 0.7
terminal:
  backend: local
  cwd: "."
  timeout: 300
  lifetime_seconds: 600
  env_passthrough: [WANDB_MODE, HF_HOME]
  credential_files: []
  shell_init_files: ["~/.zshrc"]
  home_mode: auto
  degraded_mode: warn
  container_cpu: 2
  container_memory: 8192
  container_disk: 0
  container_persistent: true
  docker_image: "nikolaik/python-nodejs:python3.11-nodejs20"
  docker_env:
    LANG: C.UTF-8
    OPENAI_API_KEY: sk-abc123
    NOTE: ghp_secretvalue
  docker_volumes: ["/data:/data:ro"]
  docker_orphan_reaper: true
  docker_persist_across_processes: true
  ssh_host: ""
  ssh_port: 22
  modal_image: im-123
  daytona:
    api_url: https://daytona.example
    api_token: very-secret
  vercel_runtime: node24
  bubblewrap_binds: ["/x"]
  sudo_password: hunter2
  nested: {a: {b: 1}}
agent:
  max_turns: null
`

const hermesEnv = `# keys
OPENAI_API_KEY=sk-xyz
export TERMINAL_SSH_HOST="gpu1"  
TERMINAL_TIMEOUT=99
TERMINAL_MAX_FOREGROUND_TIMEOUT=900
TERMINAL_VERCEL_RUNTIME=node22
DAYTONA_API_KEY=daytona-secret
SUDO_PASSWORD='hunter2'
TERMINAL_SSH_USER=ada # me
TERMINAL_SANDBOX_DIR=
`

func hermes(t *testing.T, w world, yaml, env string) string {
	t.Helper()
	dir := filepath.Join(w.src.Home, ".hermes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(t, filepath.Join(dir, "config.yaml"), yaml)
	w.write(t, filepath.Join(dir, ".env"), env)
	return dir
}

// TestImportImage: who used Hermes' default image has it still.
func TestImportImage(t *testing.T) {
	for yaml, want := range map[string]string{
		"terminal:\n  backend: docker\n":                            `docker_image = "nikolaik/python-nodejs:python3.11-nodejs20"`,
		"terminal:\n  backend: singularity\n":                       `singularity_image = "docker://nikolaik/python-nodejs:python3.11-nodejs20"`,
		"terminal:\n  backend: docker\n  docker_image: debian:12\n": `docker_image = "debian:12"`,
		"terminal:\n  backend: local\n":                             "",
	} {
		w := newWorld(t)
		dir := hermes(t, w, yaml, "")
		if _, _, err := ImportHermes(w.src, dir, false, false); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(w.user)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(data); strings.Count(s, "_image") != min(1, len(want)) || !strings.Contains(s, want) {
			t.Errorf("%q became %s", yaml, s)
		}
	}
}

// TestImport: what berth has too is written, the rest is named, and no secret
// leaves Hermes' files.
func TestImport(t *testing.T) {
	w := newWorld(t)
	dir := hermes(t, w, hermesYAML, hermesEnv)
	w.write(t, w.user, "# mine\n[terminal]\ntimeout = 300 # the same\n")
	file, list, err := ImportHermes(w.src, dir, false, false)
	if err != nil || file != w.user {
		t.Fatal(file, err)
	}
	data, err := os.ReadFile(w.user)
	if err != nil {
		t.Fatal(err)
	}
	want := `# mine
[terminal]
timeout = 300 # the same
backend = "local"
cwd = "."
lifetime_seconds = 600
env_passthrough = ["WANDB_MODE", "HF_HOME"]
container_cpu = 2
container_memory = 8192
container_disk = 0
container_persistent = true
docker_image = "nikolaik/python-nodejs:python3.11-nodejs20"
docker_env = {LANG = "C.UTF-8"}
docker_volumes = ["/data:/data:ro"]
ssh_port = 22
modal_image = "im-123"
ssh_host = "gpu1"
ssh_user = "ada"

[terminal.daytona]
api_url = "https://daytona.example"
`
	if string(data) != want {
		t.Errorf("%s", data)
	}
	out := map[string]string{}
	for _, i := range list {
		if !i.Carried {
			out[i.Key] = i.Why
		}
		for _, secret := range []string{"sk-abc123", "ghp_", "very-secret", "hunter2", "daytona-secret", "sk-xyz"} {
			if strings.Contains(i.Key+i.Value+i.Why, secret) || strings.Contains(string(data), secret) {
				t.Errorf("the secret %s is in %+v", secret, i)
			}
		}
	}
	for key, why := range map[string]string{
		"terminal.shell_init_files": "no file is read", "terminal.degraded_mode": "must be fail", "terminal.docker_env.OPENAI_API_KEY": "export OPENAI_API_KEY", "terminal.docker_env.NOTE": "looks like a secret",
		"terminal.docker_orphan_reaper": "berth env gc", "terminal.daytona.api_token": "DAYTONA_API_KEY", "terminal.vercel_runtime": "Vercel", "terminal.bubblewrap_binds": "bubblewrap", "terminal.sudo_password": "no such key",
		"terminal.nested": "of a kind", "TERMINAL_TIMEOUT": "config.yaml, which wins", "terminal.max_foreground_timeout": "no highest one", "DAYTONA_API_KEY": "the variable DAYTONA_API_KEY", "SUDO_PASSWORD": "no passwords",
	} {
		if !strings.Contains(out[key], why) {
			t.Errorf("%s: %q, not %q", key, out[key], why)
		}
		delete(out, key)
	}
	delete(out, "terminal.vercel_runtime")
	if len(out) > 0 {
		t.Errorf("more was left out: %q", out)
	}
	if fi, err := os.Stat(w.user); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	w.load(t)

	// Again: nothing changes.
	if _, _, err := ImportHermes(w.src, dir, false, false); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadFile(w.user); err != nil || string(again) != want {
		t.Errorf("%s", again)
	}
	// What differs is not written over.
	hermes(t, w, strings.Replace(hermesYAML, "timeout: 300", "timeout: 301", 1), hermesEnv)
	_, _, err = ImportHermes(w.src, dir, false, false)
	if jobs.CodeOf(err) != 2 || !strings.Contains(err.Error(), "config.toml:3: terminal.timeout is 5m, and Hermes has 301") || !strings.Contains(jobs.HintOf(err), "--force") {
		t.Errorf("%v", err)
	}
	if _, _, err := ImportHermes(w.src, dir, true, true); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(w.user); err != nil || string(now) != want {
		t.Errorf("it was written: %s", now)
	}
	if _, _, err := ImportHermes(w.src, dir, true, false); err != nil {
		t.Error(err)
	}
	if now, err := os.ReadFile(w.user); err != nil || !strings.Contains(string(now), "timeout = 301 # the same\n") {
		t.Errorf("%s, %v", now, err)
	}
}

func TestImportBad(t *testing.T) {
	w := newWorld(t)
	if _, _, err := ImportHermes(w.src, filepath.Join(w.src.Home, "nothing"), false, false); jobs.CodeOf(err) != jobs.CodeNotFound {
		t.Error(err)
	}
	for _, yaml := range []string{"terminal: [", "terminal: 3\n", "terminal: &a {}\n"} {
		dir := hermes(t, w, yaml, "")
		if _, _, err := ImportHermes(w.src, dir, false, false); jobs.CodeOf(err) != 2 || !strings.Contains(err.Error(), "config.yaml:1") {
			t.Errorf("%s: %v", yaml, err)
		}
	}
	// A file of the user's that does not parse is not touched.
	dir := hermes(t, w, hermesYAML, "")
	w.write(t, w.user, "[terminal\n")
	if _, _, err := ImportHermes(w.src, dir, true, false); jobs.CodeOf(err) != 2 {
		t.Error(err)
	}
	for backend, carried := range map[string]bool{"vercel_sandbox": false, "bubblewrap": false, "modal": true, "docker": true, "nonsense": false} {
		w.write(t, w.user, "")
		dir := hermes(t, w, "terminal:\n  backend: "+backend+"\n", "")
		_, list, err := ImportHermes(w.src, dir, false, false)
		want := 1
		if backend == "docker" {
			want = 2 // and Hermes' own image
		}
		if err != nil || len(list) != want || list[0].Carried != carried || !carried && list[0].Why == "" {
			t.Errorf("%s: %+v, %v", backend, list, err)
		}
	}
}
