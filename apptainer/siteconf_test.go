package apptainer

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/sylabs/singularity/v4/pkg/util/singularityconf"

	"berth/internal/sys/run"
	"berth/jobs"
)

// shippedApptainer is in the binary: these tests run on clusters, too, where no
// source is.
//
//go:embed testdata/apptainer-1.4.5.conf
var shippedApptainer []byte

// shippedConfs are the configurations that Apptainer and SingularityCE ship.
func shippedConfs(t *testing.T) map[string][]byte {
	t.Helper()
	defaults, err := singularityconf.GetConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	var ce bytes.Buffer
	if err := singularityconf.Generate(&ce, "", defaults); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"apptainer": shippedApptainer, "singularity-ce": ce.Bytes()}
}

func parsed(t *testing.T, text string) *SiteConf {
	t.Helper()
	c, err := parseSiteConf("/c", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	userMode = false
	setuid   = true
)

// A line by itself says what it says in the whole file, and its number is right.
func TestSiteConfLines(t *testing.T) {
	texts := map[string]string{
		"spaces": "\n\n  \t allow setuid   =\tno  \r\n\n\f\n\nbind path=/a\nallow\tpid ns = no\nmount   hostfs = yes\n",
		"odd":    "# a = b\n  # c = d\nx\nno value =\n= 3\n\xff = 1\nbad key 2 = 4\na = \xff\nlimit container paths = /a = b # c\n===\nlast = line",
	}
	for name, b := range shippedConfs(t) {
		texts[name] = string(b)
	}
	for name, text := range texts {
		want, err := singularityconf.GetDirectives(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		c, got, lines := parsed(t, text), singularityconf.Directives{}, strings.Split(text, "\n")
		for d, at := range c.lines {
			for _, l := range at {
				got[d] = append(got[d], l.value)
				if line := lines[l.number-1]; !strings.Contains(line, d) || !strings.Contains(line, l.value) {
					t.Errorf("%s: line %d is %q, and not %s = %s", name, l.number, line, d, l.value)
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestSiteConfShipped(t *testing.T) {
	for name, text := range shippedConfs(t) {
		c := parsed(t, string(text))
		if !c.is("allow setuid", "yes") || len(c.values("bind path")) != 2 {
			t.Errorf("%s: %v", name, c.lines)
		}
		for _, starter := range []bool{userMode, setuid} {
			if m := c.Remarks(starter); len(m) > 0 {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

func TestSiteConfRemarks(t *testing.T) {
	for _, c := range []struct {
		name, text   string
		user, setuid string // lines that are remarked; ! is fatal
	}{
		{"nothing", "", "", ""},
		{"comment", "#user bind control = no\n # enable overlay = no\n", "", ""},
		{"binds", "\nuser bind control = no\n", "!/c:2: user bind control = no", "!/c:2: user bind control = no"},
		{"overlay", "enable overlay = no", "/c:1: enable overlay = no", "!/c:1: enable overlay = no"},
		{"overlay by a driver", "enable overlay = driver\n", "", ""},
		{"underlay", "enable underlay = preferred\n", "", ""},
		{"setuid off", "allow setuid = no\n", "", ""}, // the line of the mode tells
		{"setuid off, no overlay", "allow setuid = no\nenable overlay = no\nmax loop devices = 1\n", "/c:2: enable overlay = no", "/c:2: enable overlay = no"},
		{"loops", "max loop devices = 0x10", "", "/c:1: max loop devices = 0x10"},
		{"loops enough", "max loop devices = 256", "", ""},
		{"loops no number", "max loop devices = many", "", ""},
		{"no spaces, many spaces", "allow pid ns=no\n\t mount hostfs   =   yes  \r\n",
			"/c:1: allow pid ns = no|/c:2: mount hostfs = yes", "/c:1: allow pid ns = no|/c:2: mount hostfs = yes"},
		{"spaces in the name", "user  bind control = no\n", "", ""}, // the program does not know it
		{"the first line counts", "enable overlay = yes\nenable overlay = no\nuser bind control = no\nuser bind control = yes\n",
			"!/c:3: user bind control = no", "!/c:3: user bind control = no"},
		{"the first part counts", "enable overlay = no,yes\n", "/c:1: enable overlay = no,yes", "!/c:1: enable overlay = no,yes"},
		{"an empty value is none", "user bind control =\nuser bind control = no", "!/c:2: user bind control = no", "!/c:2: user bind control = no"},
		{"paths", "limit container paths = /images", "/c:1: limit container paths = /images", "/c:1: limit container paths = /images"},
		{"paths NULL", "limit container paths = NULL", "", ""},
		{"paths in lines", "limit container paths = /a, /b\n#\nlimit container paths = /c\n",
			"/c:1: limit container paths = /a, /b; /c:3: limit container paths = /c", "/c:1: limit container paths = /a, /b; /c:3: limit container paths = /c"},
		{"many lines", strings.Repeat("limit container groups = g\n", 9),
			"/c:1: limit container groups = g; /c:2: limit container groups = g; /c:3: limit container groups = g; and 6 lines more",
			"/c:1: limit container groups = g; /c:2: limit container groups = g; /c:3: limit container groups = g; and 6 lines more"},
		{"owners", "limit container owners = gmk", "/c:1: limit container owners = gmk", "/c:1: limit container owners = gmk"},
		{"kinds", "allow container sif = no\nallow container squashfs = no\nallow container dir = no\nallow container extfs = no",
			"/c:1: allow container sif = no|/c:2: allow container squashfs = no|/c:4: allow container extfs = no|/c:3: allow container dir = no",
			"/c:1: allow container sif = no|/c:2: allow container squashfs = no|/c:4: allow container extfs = no|/c:3: allow container dir = no"},
	} {
		for starter, want := range map[bool]string{userMode: c.user, setuid: c.setuid} {
			var got []string
			for _, m := range parsed(t, c.text).Remarks(starter) {
				line := m.Line
				if m.Fatal {
					line = "!" + line
				}
				got = append(got, line)
				if m.Why == "" || m.Hint == "" && !strings.Contains(line, "hostfs") {
					t.Errorf("%s: %+v", c.name, m)
				}
			}
			if strings.Join(got, "|") != want {
				t.Errorf("%s, setuid %v: %q, want %q", c.name, starter, got, want)
			}
		}
	}
	// A list that is repeated is joined, as the program does.
	if got := parsed(t, "bind path = /a:/b\nbind path = /c, /d\n").values("bind path"); strings.Join(got, "|") != "/a:/b|/c|/d" {
		t.Errorf("%q", got)
	}
	if got := parsed(t, "limit container paths = "+strings.Repeat("/é", 500)).Remarks(setuid)[0].Line; len(got) > 300 || !strings.HasSuffix(got, " ...") {
		t.Errorf("%q", got)
	}
	if m := (*SiteConf)(nil).Remarks(setuid); m != nil {
		t.Errorf("not known, and yet %+v", m)
	}
}

func TestSiteConfSetuidOff(t *testing.T) {
	if got := parsed(t, "\nallow setuid = no\n").SetuidOff(); got != "/c:2: allow setuid = no" {
		t.Error(got)
	}
	if got := parsed(t, "allow setuid = yes\nallow setuid = no\n").SetuidOff() + (*SiteConf)(nil).SetuidOff(); got != "" {
		t.Error(got)
	}
}

func TestSiteConfExplain(t *testing.T) {
	const text = "limit container paths = /images\nuser bind control = no\nenable overlay = no\n" +
		"allow container squashfs = no\nmax loop devices = 256\nlimit container owners = root\n"
	for _, c := range []struct{ said, want string }{
		{"FATAL:   apptainer image is not in an allowed configured path", "/c:1: limit container paths = /images"},
		{"FATAL:   singularity image is not owned by required user(s)", "/c:6: limit container owners = root"},
		{"WARNING: Ignoring /n bind mount: user bind control disabled by system administrator\nFATAL:   stat /.berth/node: no such file",
			"/c:2: user bind control = no"},
		{"overlay images requires 'enable overlay', but set to 'no' by administrator", "/c:3: enable overlay = no"},
		{"overlay images requires 'enable overlay = yes': set to 'no' by administrator", "/c:3: enable overlay = no"},
		{"configuration disallows users from running squashFS containers", "/c:4: allow container squashfs = no"},
		{"failed to find loop device: no loop devices available", "/c:5: max loop devices = 256"},
		{"configuration disallows users from running sandbox containers", ""},
		{"could not create user namespace", ""},
		{"exec format error", ""},
		{"", ""},
	} {
		said, want := c.said, c.want
		e := parsed(t, text).explain(said, setuid)
		if e == nil && want != "" || e != nil && (e.Msg != want || e.Hint == "") {
			t.Errorf("%q: %+v", said, e)
		}
		if e != nil && (e.Kind == jobs.KindInfra) != strings.Contains(want, "loop") {
			t.Errorf("%q: kind %v", said, e.Kind)
		}
	}
	off := parsed(t, "allow setuid = no\n")
	if e := off.explain("could not create user namespace", setuid); e == nil || e.Msg != "/c:1: allow setuid = no" {
		t.Errorf("%+v", e)
	}
	if e := off.explain("could not create user namespace", userMode); e != nil {
		t.Errorf("no setuid starter is there to be turned on: %+v", e)
	}
}

func TestReadSiteConf(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	line := []byte("user bind control = no\n")
	most := append(bytes.Repeat([]byte("#\n"), (mostSiteConf-len(line))/2), line...)
	most = append(most, bytes.Repeat([]byte("\n"), mostSiteConf-len(most))...)
	for name, text := range map[string][]byte{"most": most, "more": append(most[:len(most):len(most)], '\n')} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("most", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"most", "link"} {
		c, err := ReadSiteConf(at(name))
		if err != nil || !c.is("user bind control", "no") || c.Path != at(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		at("more"): "larger than 1048576 bytes", at("fifo"): "no regular file", dir: "no regular file",
		at("none"): "no such file", "": "does not tell where",
	} {
		if c, err := ReadSiteConf(name); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestParseBuild(t *testing.T) {
	same := func(path string) string { return path }
	dir := t.TempDir()
	for out, want := range map[string]Build{
		"LIBEXECDIR=/usr/libexec\nAPPTAINER_CONF_FILE=/etc/apptainer/apptainer.conf\n":       {Libexec: "/usr/libexec", Conf: "/etc/apptainer/apptainer.conf"},
		"INFO: of the site's\r\nSINGULARITY_CONF_FILE=/etc/singularity/singularity.conf\r\n": {Conf: "/etc/singularity/singularity.conf"},
		"": {},
	} {
		b := ParseBuild(out)
		if b != want || b.SetuidStarter(func(path string) string { return dir + path }) != "" {
			t.Errorf("%q: %+v", out, b)
		}
	}
	for _, name := range programs {
		b := Build{Libexec: filepath.Join(dir, name)}
		p := filepath.Join(b.Libexec, name, "bin", "starter-suid")
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := b.SetuidStarter(same); got != "" {
			t.Errorf("%s is not setuid", got)
		}
		if err := os.Chmod(p, 0o700|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		if got := b.SetuidStarter(same); got != p {
			t.Errorf("%q, want %q", got, p)
		}
	}
}

// The program is asked for the configuration only when it has said something that a
// directive can be the reason of.
func TestExplain(t *testing.T) {
	dir := t.TempDir()
	program, conf, asked := filepath.Join(dir, "apptainer"), filepath.Join(dir, "apptainer.conf"), filepath.Join(dir, "asked")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = buildcfg ] || exit 1\n: >%s\necho APPTAINER_CONF_FILE=%s\n", asked, conf)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	explain := Explain(run.Local{}, program, nil)
	const said = "FATAL:   apptainer image is not in an allowed configured path"
	if e := explain(t.Context(), said); e != nil {
		t.Errorf("there is none to be read: %+v", e)
	}
	if err := os.WriteFile(conf, []byte("#\nlimit container paths = /images\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := explain(t.Context(), said); e == nil || e.Msg != conf+":2: limit container paths = /images" || e.Hint != hintLimitPaths {
		t.Errorf("%+v", e)
	}
	if err := os.Remove(asked); err != nil {
		t.Fatal(err)
	}
	if e := explain(t.Context(), "FATAL:   out of luck"); e != nil {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(asked); err == nil {
		t.Error("asked for nothing")
	}
	if e := Explain(run.Local{}, filepath.Join(dir, "none"), nil)(t.Context(), said); e != nil {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := explain(ctx, said); e != nil {
		t.Errorf("%+v", e)
	}
}

// A try that a directive has made fail names its line and has its hint, not the
// one to leave the driver out.
func TestTryExplained(t *testing.T) {
	dir := t.TempDir()
	program, conf := filepath.Join(dir, "apptainer"), filepath.Join(dir, "apptainer.conf")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = buildcfg ] && { echo APPTAINER_CONF_FILE=%s; exit; }\n"+
		"echo 'FATAL:   apptainer image is not in an allowed configured path' >&2\nexit 255\n", conf)
	for path, text := range map[string]string{program: script, conf: "limit container paths = /images\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o := &opener{b: &Backend{}, program: program, spec: &jobs.EnvSpec{Home: t.TempDir()}, at: jobs.OpenPlace{Scratch: dir, On: run.Local{}}}
	f := o.probe(t.Context(), []string{"x"}, func(ctx context.Context) error { return o.tryArgv(ctx, []string{program, "exec"}, false) })
	err := f.refuse(jobs.DriverFuse)
	want := "apptainer image is not in an allowed configured path (" + conf + ":1: limit container paths = /images)"
	if f.Why != want || jobs.HintOf(err) != hintLimitPaths {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
}

// Every rule is about a directive that the program has.
func TestSiteRulesKnown(t *testing.T) {
	known := map[string]bool{}
	for _, text := range shippedConfs(t) {
		maps.Copy(known, map[string]bool{"limit container owners": true, "limit container groups": true, "limit container paths": true})
		for name := range parsed(t, string(text)).lines {
			known[name] = true
		}
	}
	for _, r := range siteRules {
		if !known[r.name] || r.why == "" && len(r.said) == 0 {
			t.Errorf("%+v", r.name)
		}
	}
}
