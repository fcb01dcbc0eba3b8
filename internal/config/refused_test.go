package config

import (
	"strings"
	"testing"
	"time"

	"berth/internal/config/strict"
	"berth/jobs"
)

// TestRefused: a key without its power is refused by name and reason wherever
// it stands, but for the value that says what berth does in any case.
func TestRefused(t *testing.T) {
	for i := range Keys() {
		k := &Keys()[i]
		if k.Refused == "" {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			w := newWorld(t)
			bad := map[Type]string{Bool: "true", List: `["x"]`, Text: `"x"`, Word: `"warn"`}[k.Type]
			if k.Only == "true" {
				bad = "false"
			}
			says := func(err error) {
				t.Helper()
				if jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(err.Error(), k.Refused) {
					t.Errorf("%v", err)
				}
			}
			refuse := func() {
				t.Helper()
				_, err := Load(w.src)
				says(err)
			}
			w.write(t, w.user, inTable(k, bad))
			refuse()
			if _, err := Load(w.src); err != nil && !strings.Contains(err.Error(), "config.toml:2: "+k.Name+" ") {
				t.Errorf("no line: %v", err)
			}
			w.write(t, w.user, "[targets.lake]\n[targets.lake.terminal]\n"+k.leaf()+" = "+bad+"\n")
			refuse()
			w.write(t, w.user, "")
			w.write(t, w.proj, inTable(k, bad))
			refuse()
			w.write(t, w.proj, "")
			for _, name := range k.Env {
				w.src.Environ = []string{name + "=" + strings.Trim(bad, `"`)}
				if k.Type == Bool && k.Alien == "true" && k.Only == "false" { // true is what a launcher sets
					w.src.Environ[0] = name + "=maybe"
				}
				refuse()
				w.src.Environ = []string{name + "="}
				w.load(t)
				if k.Alien != "" {
					w.src.Environ = []string{name + "=" + k.Alien}
					w.load(t)
				}
				w.src.Environ = nil
			}
			_, err := Set(w.src, false, k.Name, strings.Trim(bad, `"`))
			says(err)
			if k.Only != "" {
				only := k.Only
				if k.Type != Bool {
					only = literal(only)
				}
				w.write(t, w.user, inTable(k, only))
				if v := w.load(t).Get(k.Name); v.V != nil {
					t.Errorf("it has the value %v", v.V)
				}
				if _, err := Set(w.src, false, k.Name, k.Only); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestForeign: whole families of names.
func TestForeign(t *testing.T) {
	w := newWorld(t)
	for name, why := range map[string]string{"vercel_token": noVercel, "bubblewrap_memory_mb": noBubblewrap, "managed_modal_connect_timeout_seconds": noManaged} {
		w.write(t, w.user, "[terminal]\n"+name+" = 1\n")
		if _, err := Load(w.src); err == nil || !strings.Contains(err.Error(), ":2: key \""+name+"\" in [terminal]") || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
		w.write(t, w.user, "")
		variable := "TERMINAL_" + strings.ToUpper(name)
		w.src.Environ = []string{variable + "=1"}
		if _, err := Load(w.src); err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), why) || jobs.CodeOf(err) != 2 {
			t.Errorf("%s: %v", variable, err)
		}
		w.src.Environ = nil
		if _, err := Set(w.src, false, "terminal."+name, "1"); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("set %s: %v", name, err)
		}
	}
	w.src.Environ = []string{"TERMINAL_EMULATOR=kitty", "TERMINAL_THEME=dark", "TERM_PROGRAM=x", "TERMINAL=xterm", "TERMINAL_APPLICATION_NAME=y", "TERM=x"}
	w.load(t)
}

// slips are the words that differ from one by a letter that is missing, or two
// that have changed places.
func slips(word string) []string {
	var out []string
	for i := range word {
		out = append(out, word[:i]+word[i+1:])
		if i > 0 && word[i] != word[i-1] {
			out = append(out, word[:i-1]+word[i:i+1]+word[i-1:i]+word[i+1:])
		}
	}
	return out
}

// TestSlips: whoever misspells a key, a backend or a variable is told the right
// one.
func TestSlips(t *testing.T) {
	w := newWorld(t)
	known := func(list []string, s string) bool {
		for _, k := range list {
			if k == s {
				return true
			}
		}
		return false
	}
	var leaves, variables []string
	for i := range Keys() {
		leaves = append(leaves, Keys()[i].leaf())
		variables = append(variables, Keys()[i].Env...)
	}
	n := 0
	for _, k := range usable() {
		for _, slip := range slips(k.leaf()) {
			if len(slip) < 2 || known(leaves, slip) || slip == "env" || slip == "limit" || strings.Trim(slip, "_") == "" {
				continue
			}
			n++
			text := slip + " = 1\n"
			if k.table() != "" {
				text = "[" + k.table() + "]\n" + text
			}
			w.write(t, w.user, text)
			_, err := Load(w.src)
			want := ":1: unknown key "
			if k.table() != "" {
				want = ":2: unknown key "
			}
			// A table that is meant by such a word may be the nearer answer.
			if err == nil || jobs.CodeOf(err) != 2 || !strings.Contains(err.Error(), want+literal(slip)) || !strings.Contains(err.Error(), "did you mean") {
				t.Errorf("%s for %s: %v", slip, k.Name, err)
				continue
			}
			if !strings.Contains(err.Error(), `"`+k.leaf()+`"`) && !rival(slip, k, leaves) {
				t.Errorf("%s for %s: %v", slip, k.Name, err)
			}
			if k.table() != "" {
				full := k.table() + "." + slip
				if _, err := Set(w.src, false, full, "1"); err == nil || !strings.Contains(err.Error(), "did you mean "+k.Name+"?") && !rival(slip, k, leaves) {
					t.Errorf("set %s: %v", full, err)
				}
			}
		}
		for _, name := range k.Env {
			word, ok := strings.CutPrefix(name, envPrefix)
			if !ok {
				continue
			}
			for _, slip := range slips(word) {
				if slip == "" || known(variables, envPrefix+slip) {
					continue
				}
				n++
				w.write(t, w.user, "")
				w.src.Environ = []string{envPrefix + slip + "=1"}
				_, err := Load(w.src)
				w.src.Environ = nil
				if err == nil || !strings.Contains(err.Error(), "did you mean TERMINAL_") {
					t.Errorf("%s for %s: %v", slip, name, err)
				}
			}
		}
	}
	for _, b := range backendWords {
		for _, slip := range slips(b) {
			if len(slip) < 2 {
				continue
			}
			n++
			w.write(t, w.user, "\n[terminal]\nbackend = "+literal(slip)+"\n")
			if _, err := Load(w.src); err == nil || !strings.Contains(err.Error(), "config.toml:3: terminal.backend must be") || !strings.Contains(err.Error(), "did you mean "+literal(b)+"?") {
				t.Errorf("%s for %s: %v", slip, b, err)
			}
			w.write(t, w.user, "")
			w.src.Environ = []string{"TERMINAL_ENV=" + slip}
			if _, err := Load(w.src); err == nil || !strings.Contains(err.Error(), "TERMINAL_ENV must be") || !strings.Contains(err.Error(), "did you mean "+literal(b)+"?") {
				t.Errorf("%s for %s: %v", slip, b, err)
			}
			w.src.Environ = nil
		}
	}
	if n < 1500 {
		t.Errorf("only %d slips", n)
	}
}

// rival tells whether a slip of one key is as near to another key.
func rival(slip string, k *Key, leaves []string) bool {
	near := strict.Slip(slip, leaves, 1)
	return near != "" && near != k.leaf()
}

// TestProgram: what the configuration says of backends that are programs, and
// for no other one.
func TestProgram(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.user, `[terminal]
backend = "modal"
modal_mode = "direct"
modal_image = "im-1"
container_cpu = 3
allow = ["*.example.com"]
[terminal.daytona]
api_url = "https://x.example"
api_token = "tok"
auto_destroy = true
auto_destroy_after_seconds = 7200
[terminal.external.modal]
region = "eu"
[terminal.external.my-cloud]
zone = "b"
`)
	c := w.load(t)
	of := func(backend string) jobs.EnvOptions {
		t.Helper()
		o, _, err := c.forBackend(backend)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if o := of("modal"); o.Image != "im-1" || o.External.Options["region"] != "eu" || len(o.External.Options) != 1 || o.Resources.CPUs != 3 || strings.Join(o.Network.Allow, " ") != "*.example.com" || o.Destroy {
		t.Errorf("%+v", o)
	}
	if o := of("daytona"); o.External.Options["api_url"] != "https://x.example" || len(o.External.Options) != 1 || !o.Destroy || o.DestroyAfter != 2*time.Hour {
		t.Errorf("%+v", o)
	}
	if o := of("my-cloud"); o.External.Options["zone"] != "b" || len(o.External.Options) != 1 || o.Image != "" {
		t.Errorf("%+v", o)
	}
	if o := of("docker"); o.External != nil || o.Image != "" {
		t.Errorf("%+v", o)
	}
	if got := strings.Join(c.Keys(), " "); got != "DAYTONA_API_KEY=tok DAYTONA_API_URL=https://x.example" {
		t.Errorf("keys: %q", got)
	}
	if o := c.Options("modal"); o["region"] != "eu" || len(o) != 1 || c.Options("other") != nil {
		t.Errorf("%v %v", o, c.Options("other"))
	}
	task := jobs.Task{}
	if _, err := c.Task(&task); err != nil || task.Backend != "modal" || task.Reference != "im-1" || task.External.Options["region"] != "eu" || len(task.Network.Allow) != 1 {
		t.Errorf("%+v %v", task, err)
	}
	for _, text := range []string{"[terminal]\nexternal = 1\n", "[terminal.external]\nx = \"y\"\n", "[terminal.external.docker]\nx = \"y\"\n", "[terminal.external.modal]\nx = 5\n", "[terminal]\nbackend = \"modla\"\n"} {
		if _, err := parse("/c.toml", []byte(text), layerUser); jobs.CodeOf(err) != 2 {
			t.Errorf("%q: %v", text, err)
		}
	}
	// An option is recorded, so a key is none.
	for _, text := range []string{"[terminal.external.daytona]\napi_token = \"dtn_123\"\n", "[terminal.external.my-cloud]\nword = \"sk-123\"\n", "[terminal]\nexternal = [\"my-cloud.api_key=123\"]\n"} {
		if _, err := parse("/c.toml", []byte(text), layerUser); jobs.CodeOf(err) != 2 || !strings.Contains(err.Error(), "/c.toml:2: terminal.external") || !strings.Contains(err.Error(), "looks like a secret") || strings.Contains(err.Error(), "123") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := parse("/c.toml", []byte("[terminal.external.daytona]\napi_token = \"${DAYTONA_X}\"\n"), layerUser); err != nil {
		t.Error(err)
	}
	w.write(t, w.user, "[terminal]\nbackend = \"modal\"\nmodal_mode = \"managed\"\n")
	c = w.load(t)
	if _, _, err := c.forBackend("modal"); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "config.toml:3") {
		t.Error(err)
	}
}
