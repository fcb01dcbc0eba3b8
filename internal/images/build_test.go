package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/jobs"
)

// builder is "apptainer build" of a definition, or of a sandbox, as far as the
// words in the definition want it: it makes an image of the words.
func builder(args []string) int {
	fail := func(words string) int {
		fmt.Fprintln(os.Stderr, words)
		return 255
	}
	if i := slices.Index(args, "--sandbox"); i >= 0 {
		if err := os.Mkdir(args[i+1], 0o700); err != nil {
			return fail(err.Error())
		}
		return 0
	}
	made, file := args[len(args)-2], args[len(args)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		return fail(err.Error())
	}
	here, err := os.Getwd()
	if err != nil {
		return fail(err.Error())
	}
	flags := args[:len(args)-2]
	for len(flags) >= 2 && flags[len(flags)-2] == "--bind" { // what a script would have at /tmp and /var/tmp
		from, to, _ := strings.Cut(flags[len(flags)-1], ":")
		fi, err := os.Stat(from)
		if err != nil {
			return fail(err.Error())
		}
		entries, _ := os.ReadDir(from)
		fmt.Printf("own %s %v, %d files\n", to, fi.Mode(), len(entries))
		flags = flags[:len(flags)-2]
	}
	fmt.Printf("building with %q in %s\n", flags, here)
	fmt.Printf("login %q, proxy %q\n", os.Getenv("APPTAINER_DOCKER_PASSWORD"), os.Getenv("https_proxy"))
	has := func(word string) bool { return bytes.Contains(text, []byte(word)) }
	switch {
	case has("NO-IDS") && !slices.Contains(args, "--second"):
		return fail("newuidmap: write to uid_map failed: Operation not permitted")
	case has("NOBODY"):
		return fail("FATAL:   could not use fakeroot: no mapping entry found in /etc/subuid")
	case has("KILLED"):
		return fail("FATAL:   While performing build: packer failed to pack: exit status 1\n\r[==-    ]  5/9  2% \r[===|   ]  7/9 90%: signal: killed")
	case has("AWAY"):
		return fail("FATAL:   While performing build: conveyor failed to get: GET http://x/v2/a/manifests/1: NAME_UNKNOWN: Unknown name")
	case has("FAIL"):
		return fail("ls: cannot access '/x'\nFATAL:   While performing build: while running engine: while running %post section: exit status 2")
	case has("FULL"):
		return fail("FATAL:   While performing build: write /x: no space left on device")
	}
	if err := os.WriteFile(made, sif(text), 0o700); err != nil {
		return fail(err.Error())
	}
	return 0
}

func define(text string, out *bytes.Buffer) *Definition {
	return &Definition{Text: []byte(text), Output: out, Ways: []Way{{Name: "one"}, {Name: "two", Flags: []string{"--second"}, Alone: true}}}
}

// An image is built, found by its name, and stands with its definition; the
// same name again is another image.
func TestBuild(t *testing.T) {
	c := cache(t)
	var out bytes.Buffer
	img, err := c.Build(t.Context(), "build:a", define("Bootstrap: docker\nFrom: debian:12\n", &out))
	must(t, err)
	if img.Reference != "build:a" || img.Fakeroot != "one" || !strings.Contains(out.String(), "building with []") {
		t.Errorf("%+v, %s", img, &out)
	}
	for _, own := range []string{"own /tmp dtrwxrwxrwx, 0 files", "own /var/tmp dtrwxrwxrwx, 0 files"} {
		if !strings.Contains(out.String(), own) {
			t.Errorf("a script does not have its %q: %s", own, &out)
		}
	}
	def, err := os.ReadFile(c.DefinitionPath(img.Sum))
	if err != nil || string(def) != "Bootstrap: docker\nFrom: debian:12\n" || img.Definition == "" {
		t.Errorf("%q, %v", def, err)
	}
	for _, get := range []func() (Image, error){
		func() (Image, error) { return c.Known("build:a") },
		func() (Image, error) { return c.Get(t.Context(), "build:a") },
		func() (Image, error) { return c.Find("build:a") },
	} {
		if got, err := get(); err != nil || got.Sum != img.Sum {
			t.Errorf("%+v, %v", got, err)
		}
	}
	again, err := c.Build(t.Context(), "build:a", define("Bootstrap: docker\nFrom: debian:13\n", &out))
	if err != nil || again.Sum == img.Sum {
		t.Errorf("%+v, %v", again, err)
	}
	if got, err := c.Known("build:a"); err != nil || got.Sum != again.Sum {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, c.Remove(again))
	if _, err := os.Lstat(c.DefinitionPath(again.Sum)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the definition is left: ", err)
	}
	if _, err := c.Get(t.Context(), "build:a"); jobs.CodeOf(err) != jobs.CodeNotFound || !strings.Contains(jobs.HintOf(err), "berth image build FILE.def --name a") {
		t.Errorf("%v, %s", err, jobs.HintOf(err))
	}
}

// What is made here of an overlay is made once, and again when it is gone; what is no image is not kept.
func TestMade(t *testing.T) {
	c := cache(t)
	made := 0
	by := func(text string) func(context.Context, string) error {
		return func(_ context.Context, path string) error {
			made++
			return os.WriteFile(path, []byte(text), 0o600)
		}
	}
	ref := OverlayRef("deps", "image", "digest")
	if !IsBuilt(ref) || !IsReference(ref) || ref == OverlayRef("deps", "image", "other") {
		t.Errorf("%q", ref)
	}
	if got, err := Settle(ref); err != nil || got != ref {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Settle("overlay:deps"); jobs.CodeOf(err) != jobs.CodeUsage || !strings.HasSuffix(jobs.HintOf(err), "--overlay deps") {
		t.Errorf("%v, %s", err, jobs.HintOf(err))
	}
	if _, err := c.Made(t.Context(), ref, by("no image")); err == nil {
		t.Error("what is no image was kept")
	}
	img, err := c.Made(t.Context(), ref, by(string(sif([]byte("files")))))
	must(t, err)
	if img.Reference != ref || img.Path != c.Path(img.Sum) || made != 2 {
		t.Errorf("%+v, made %d times", img, made)
	}
	again, err := c.Made(t.Context(), ref, by("not made"))
	must(t, err)
	if again.Sum != img.Sum || made != 2 {
		t.Errorf("%+v, made %d times", again, made)
	}
	if got, err := c.Known(ref); err != nil || got.Sum != img.Sum {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, c.Remove(again))
	if _, err := c.Known(ref); jobs.CodeOf(err) != jobs.CodeNotFound || !strings.Contains(jobs.HintOf(err), "--overlay deps") {
		t.Errorf("%v, %s", err, jobs.HintOf(err))
	}
	if _, err := c.Made(t.Context(), ref, by(string(sif([]byte("files"))))); err != nil || made != 3 {
		t.Errorf("%v, made %d times", err, made)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Dir, prefixNew+"*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Scripts of a definition run outside of the container, too: they see a login only
// where the definition fetches something by it.
func TestBuildLogins(t *testing.T) {
	c := cache(t)
	getenv := c.Getenv
	c.Getenv = func(n string) string {
		if v := map[string]string{"APPTAINER_DOCKER_PASSWORD": "pw", "https_proxy": "p:1"}[n]; v != "" {
			return v
		}
		return getenv(n)
	}
	for text, want := range map[string]string{
		"Bootstrap: docker\nFrom: h/x:1\n": `login "pw", proxy "p:1"`, "Bootstrap: localimage\nFrom: /x.sif\n%setup\n  env\n": `login "", proxy "p:1"`,
		"Bootstrap: scratch\n": `login "", proxy "p:1"`, "Bootstrap: scratch\n\nBootstrap: oras\nFrom: h/x:1\n": `login "pw", proxy "p:1"`,
	} {
		var out bytes.Buffer
		if _, err := c.Build(t.Context(), "build:a", define(text, &out)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %v, %s", text, err, &out)
		}
	}
}

// What everything that goes into it names is built once, however many want it.
func TestBuildOnce(t *testing.T) {
	c := cache(t)
	ref := TemplateRef("t", "base", "script")
	if other := TemplateRef("t", "base", "other"); other == ref {
		t.Error("two templates have one reference")
	}
	outs := make([]bytes.Buffer, 6)
	var wg sync.WaitGroup
	for i := range outs {
		wg.Go(func() {
			mine := *c
			if _, err := mine.Build(t.Context(), ref, define("Bootstrap: scratch\n", &outs[i])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	built := 0
	for i := range outs {
		built += strings.Count(outs[i].String(), "building with")
	}
	if built != 1 {
		t.Errorf("it was built %d times", built)
	}
}

// Where %post cannot be root in one way, the next is taken; its base is
// unpacked for the way that knows no other users.
func TestBuildWays(t *testing.T) {
	c := cache(t)
	base := filepath.Join(t.TempDir(), "base.sif")
	must(t, os.WriteFile(base, sif([]byte("x")), 0o600))
	text := "Bootstrap: localimage\nFrom: " + base + "\n%post\n  NO-IDS\n"
	var out bytes.Buffer
	img, err := c.Build(t.Context(), "build:b", define(text, &out))
	must(t, err)
	if img.Fakeroot != "two" || !strings.Contains(out.String(), `"--second"`) {
		t.Errorf("%+v, %s", img, &out)
	}
	data, err := os.ReadFile(img.Path)
	if err != nil || !bytes.Contains(data, []byte("/w/base/0\n%post")) || bytes.Contains(data, []byte(base)) {
		t.Errorf("it was built from %q, %v", data, err)
	}
	if def, err := os.ReadFile(c.DefinitionPath(img.Sum)); err != nil || string(def) != text {
		t.Errorf("%q, %v", def, err)
	}
}

func TestBuildFails(t *testing.T) {
	c := cache(t)
	for text, want := range map[string]struct {
		code int
		says string
	}{
		"FAIL":   {jobs.CodeUsage, "a script of the definition failed"},
		"FULL":   {jobs.CodeInfra, "no space left"},
		"KILLED": {jobs.CodeInfra, "for memory as it seems"},
		"AWAY":   {jobs.CodeNotFound, "docker://debian:12"},
		"NOBODY": {jobs.CodeConfig, "its %post needs root, and fakeroot is not available on "},
	} {
		var out bytes.Buffer
		_, err := c.Build(t.Context(), "build:c", define("Bootstrap: docker\nFrom: debian:12\n%post\n"+text+"\n", &out))
		if jobs.CodeOf(err) != want.code || !strings.Contains(fmt.Sprint(err), want.says) || errors.Is(err, ErrScript) != (text == "FAIL") {
			t.Errorf("%s: %v (%d)", text, err, jobs.CodeOf(err))
		}
		if n := strings.Count(out.String(), "building with"); n != map[string]int{"FAIL": 1, "FULL": 1, "KILLED": 1, "AWAY": 1, "NOBODY": 2}[text] {
			t.Errorf("%s: tried %d times: %s", text, n, &out)
		}
	}
	for _, ref := range []string{"docker://debian", "build:", "build:../x", "build:A b", "template:x", "template:x@12"} {
		if _, err := c.Build(t.Context(), ref, define("Bootstrap: scratch\n", nil)); jobs.CodeOf(err) != jobs.CodeUsage {
			t.Errorf("%s: %v", ref, err)
		}
	}
	// Files beside a definition that this machine does not see.
	d := define("Bootstrap: scratch\n%files\n  a /a\n", &bytes.Buffer{})
	d.Dir = "/nowhere"
	if _, err := c.Build(t.Context(), "build:d", d); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Error(err)
	}
}

func TestHeader(t *testing.T) {
	for text, want := range map[string]Header{
		"":                                    {},
		"%post\n true":                        {},
		"# x\nBootstrap: docker\nFrom: a:1\n": {Bootstrap: "docker", From: "a:1"},
		"bootstrap : LocalImage\nfrom: b.sif\n%post\n From: x":                                                           {Bootstrap: "localimage", From: "b.sif", Local: true},
		"Bootstrap: localimage\nFrom: /b.sif\n%files\n # a\n\n /etc/x /x\n":                                              {Bootstrap: "localimage", From: "/b.sif"},
		"Bootstrap: scratch\n%files\n  a /a":                                                                             {Bootstrap: "scratch", Local: true},
		"Bootstrap: docker\nFrom: a\nStage: one\n%post\n true\nBootstrap: localimage\nFrom: c.sif\n%files from one\n /x": {Bootstrap: "docker", From: "a", Local: true},
	} {
		got := ReadHeader([]byte(text))
		got.stages = nil
		if got.Bootstrap != want.Bootstrap || got.From != want.From || got.Local != want.Local {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := ReadHeader([]byte("Bootstrap: docker\nFrom: 127.0.0.1:5000/a\n")).ask(); got != "docker://127.0.0.1:5000/a" {
		t.Error(got)
	}
}

// A build with a network of its own runs nothing on the node itself, and without a network it
// begins with files.
func TestHeaderWithin(t *testing.T) {
	none, list := jobs.Network{Mode: jobs.NetworkNone}, jobs.Network{Mode: jobs.NetworkAllow}
	for _, c := range []struct {
		text string
		n    jobs.Network
		says string
	}{
		{"Bootstrap: localimage\nFrom: /b.sif\n%post\n true\n", none, ""},
		{"Bootstrap: docker\nFrom: a:1\n", list, ""},
		{"Bootstrap: scratch\nStage: one\nBootstrap: docker\nFrom: a:1\n", none, "begins with docker a:1, which a build without a network cannot fetch"},
		{"Bootstrap: scratch\n%Setup\n true\n", none, "line 2 of the definition begins a section that runs on the node itself"},
		{"Bootstrap: scratch\n%post\n true\n%pre\n true\n", list, "line 4"},
	} {
		err := ReadHeader([]byte(c.text)).Within(c.n)
		if c.says == "" && err != nil || c.says != "" && (jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(fmt.Sprint(err), c.says)) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

// Each way has a place of its own to run in, which ends with it; where none can be made,
// the next way is tried, and nothing runs outside.
func TestBuildContained(t *testing.T) {
	c := cache(t)
	on, begun, ended := c.On, []string{}, 0
	c.On = nil // whatever starts there panics
	var out bytes.Buffer
	d := define("Bootstrap: scratch\n", &out)
	d.Contain = func(_ context.Context, w Way) (jobs.Starter, func(), error) {
		begun = append(begun, w.Name)
		if w.Name == "one" {
			return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "newuidmap is not here"}
		}
		return on, func() { ended++ }, nil
	}
	if _, err := c.Build(t.Context(), "build:contained", d); err != nil || len(begun) != 2 || ended != 1 {
		t.Errorf("%v: %q, %d ended", err, begun, ended)
	}
	d.Ways = d.Ways[:1]
	if _, err := c.Build(t.Context(), "build:none", d); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(fmt.Sprint(err), "newuidmap is not here") {
		t.Error(err)
	}
}

// The shell that confines scripts, and the empty directory over the base's own,
// are given to the container program; a way without privilege has neither.
func TestBuildConfined(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := cache(t)
	for _, bare := range []bool{false, true} {
		var out bytes.Buffer
		d := define("Bootstrap: scratch\n", &out)
		d.Shell, d.Ways = exe, []Way{{Name: "one", Bare: bare}}
		if _, err := c.Build(t.Context(), "build:confined", d); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "own /bin/sh -rwxr-xr-x") && strings.Contains(out.String(), "own /.singularity.d/env drwxr-xr-x, 0 files"); got == bare {
			t.Errorf("bare %v: %s", bare, out.String())
		}
	}
	for text, want := range map[string]int{"Bootstrap: scratch\n%test\n\n  #!/bin/cat\n": 4, "Bootstrap: scratch\n%runscript\n#!/bin/cat\n%test\n true\n": 0, "%TEST\n#!/bin/cat\n": 2} {
		if got := ReadHeader([]byte(text)).interpreter; got != want {
			t.Errorf("%q: line %d", text, got)
		}
	}
}
