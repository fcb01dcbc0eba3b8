package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// boxed is a machine with a container program that tells what it is, and runs
// nothing.
func boxed(t *testing.T, version, conf string, setuid bool) Where {
	t.Helper()
	w := where(t)
	bin := programs(t, map[string]string{"apptainer": `[ -n "$APPTAINER_CONFIGDIR" ] && [ "${APPTAINER_CONFIGDIR#$HOME/}" = "$APPTAINER_CONFIGDIR" ] || { echo "it would make $HOME/.apptainer" >&2; exit 1; }
case $1 in --version) echo "` + version + `";;
buildcfg) printf 'LIBEXECDIR=/usr/libexec\nAPPTAINER_CONF_FILE=/etc/apptainer/apptainer.conf\nAPPTAINER_SUID_INSTALL=1\n';;
*) echo "FATAL:   no such thing here" >&2; exit 255;; esac`})
	env := map[string]string{"PATH": bin + ":/usr/bin:/bin:/usr/sbin:/sbin", "TMPDIR": w.Getenv("TMPDIR"), "HOME": w.Getenv("HOME")}
	w.Getenv = func(n string) string { return env[n] }
	put(t, w, "/etc/apptainer/apptainer.conf", conf)
	if setuid {
		put(t, w, "/usr/libexec/apptainer/bin/starter-suid", "")
		if err := os.Chmod(w.path("/usr/libexec/apptainer/bin/starter-suid"), os.ModeSetuid|0o755); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestBox(t *testing.T) {
	b, err := os.ReadFile("../../apptainer/testdata/apptainer-1.4.5.conf")
	if err != nil {
		t.Fatal(err)
	}
	shipped := string(b)
	// A line that is added would do nothing where the directive is set already.
	set := func(name, value string) string {
		return regexp.MustCompile("(?m)^"+name+" = .*$").ReplaceAllString(shipped, name+" = "+value)
	}
	const now = "apptainer version 1.4.5-1.el9"
	for _, c := range []struct {
		name, version, conf string
		setuid              bool
		id                  string
		want                []string
	}{
		{"program", now, shipped, false, "apptainer.program", []string{"ok apptainer 1.4.5-1.el9 ("}},
		{"lies", "usage: apptainer", shipped, false, "apptainer.program", []string{"fail does not run: apptainer --version printed no version: usage: apptainer"}},
		{"flaws", now, shipped, true, "apptainer.flaws", []string{"ok no flaw"}},
		{"old", "apptainer version 1.1.7", shipped, false, "apptainer.flaws", []string{"warn CVE-2024-3727", "warn CVE-2025-65105", "warn ext3 layers"}},
		{"old and setuid", "apptainer version 1.1.7", shipped, true, "apptainer.flaws", []string{"warn CVE-2023-30549", "warn CVE-2024-3727", "warn CVE-2025-65105", "warn ext3 layers"}},
		{"CE", "singularity-ce version 4.1.0-jammy", shipped, false, "apptainer.flaws", []string{"ok knows no list"}},
		{"not setuid", now, shipped, false, "apptainer.mode", []string{"ok not setuid"}},
		{"setuid", now, shipped, true, "apptainer.mode", []string{"ok is setuid root"}},
		{"setuid turned off", now, set("allow setuid", "no"), true, "apptainer.mode", []string{"ok (/etc/apptainer/apptainer.conf:16: allow setuid = no): containers are made in user namespaces"}},
		{"a later line does nothing", now, shipped + "\nallow setuid = no\n", true, "apptainer.mode", []string{"ok is setuid root"}},
		{"shipped", now, shipped, true, "apptainer.conf", []string{"ok nothing in /etc/apptainer/apptainer.conf"}},
		{"no binds", now, set("user bind control", "no"), false, "apptainer.conf",
			[]string{"fail /etc/apptainer/apptainer.conf:133: user bind control = no: berth cannot bring its program into a container"}},
		{"no overlay, setuid", now, set("enable overlay", "no"), true, "apptainer.conf", []string{"fail apptainer.conf:152: enable overlay = no: no writable layer"}},
		{"no overlay, not setuid", now, set("enable overlay", "no"), false, "apptainer.conf", []string{"warn apptainer.conf:152: enable overlay = no: layers of the drivers fuse and ext3 are refused"}},
		{"few loop devices", now, set("max loop devices", "8"), true, "apptainer.conf", []string{"warn apptainer.conf:22: max loop devices = 8: "}},
		{"few loop devices, not setuid", now, set("max loop devices", "8"), false, "apptainer.conf", []string{"ok"}},
		{"too large", now, shipped + strings.Repeat("#\n", 1<<19), true, "apptainer.conf", []string{"skip cannot be read: "}},
		{"limits", now, "limit container paths = /images, /lab\nallow pid ns = no\n mount hostfs=yes\n#user bind control = no\n", true, "apptainer.conf",
			[]string{"warn apptainer.conf:2: allow pid ns = no", "warn apptainer.conf:1: limit container paths = /images, /lab: other images are refused",
				"warn apptainer.conf:3: mount hostfs = yes"}},
		{"not limited", now, shipped + "\nlimit container paths = NULL\n", true, "apptainer.conf", []string{"ok"}},
		{"kernel", now, shipped, false, "overlay.kernel", []string{"warn "}},
		{"fuse", now, shipped, false, "overlay.fuse", []string{"warn no such thing here"}},
		{"ext3", now, shipped, false, "overlay.ext3", []string{"warn no such thing here"}},
		{"fakeroot", now, shipped, false, "apptainer.fakeroot", []string{"warn --fakeroot does not work: no such thing here"}},
		{"network", now, shipped, false, "apptainer.network", []string{"warn network isolation is not available: no such thing here"}},
		{"helpers", now, shipped, true, "fuse.helpers", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := boxed(t, c.version, c.conf, c.setuid)
			w.Program = "/bin/true" // in place of berth-node: it mounts nothing
			got := lookAt(t, w, c.id)
			for i := range got {
				got[i].Why = oneLine(got[i].Why)
			}
			if c.id == "overlay.kernel" { // what /bin/true would run is not seen
				if len(got) != 1 {
					t.Errorf("%+v", got)
				}
			} else {
				expect(t, c.name, got, c.want...)
			}
			if left, _ := filepath.Glob(filepath.Join(w.Getenv("TMPDIR"), "*")); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

func TestHelpersMissing(t *testing.T) {
	w := boxed(t, "apptainer version 1.4.5", "", false)
	bin := strings.SplitN(w.Getenv("PATH"), ":", 2)[0]
	home := w.Getenv("HOME")
	w.Getenv = func(n string) string { return map[string]string{"PATH": bin, "HOME": home}[n] }
	put(t, w, "/usr/libexec/apptainer/bin/fuse2fs", "")
	if err := os.Chmod(w.path("/usr/libexec/apptainer/bin/fuse2fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, "helpers", lookAt(t, w, "fuse.helpers"), "warn missing: squashfuse_ll (images are mounted slowly, or unpacked for each start), fuse-overlayfs (a directory cannot be a layer over an image)")
}

func TestModules(t *testing.T) {
	m, err := parseModules("berth-kind Lmod 8.7.37\n/opt/modules:\napptainer/\napptainer/1.3.4\napptainer/1.10.0(default)\ngcc/12\nsingularity-ce/4.1\ntools/Apptainer/1.2\n")
	if err != nil || m.kind != "Lmod 8.7.37" || strings.Join(m.boxes, " ") != "singularity-ce/4.1 apptainer tools/Apptainer/1.2 apptainer/1.3.4 apptainer/1.10.0" {
		t.Errorf("%v: %+v", err, m)
	}
	if _, err := parseModules("berth-none\n"); err == nil {
		t.Error("nothing is a module system")
	}
	w := where(t)
	init := filepath.Join(t.TempDir(), "bash")
	// A bash whose function is exported stands for a site's.
	text := `#!/bin/bash
export LMOD_VERSION=8.7
module() { case "$*" in "-t avail") echo "/x:" >&2; echo apptainer/1.4.5 >&2;; esac; }
export -f module
exec /bin/bash "$@"
`
	if err := os.WriteFile(init, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"PATH": filepath.Dir(init)}
	w.Getenv = func(n string) string { return env[n] }
	expect(t, "modules", lookAt(t, w, "modules"), "ok Lmod 8.7; it has apptainer/1.4.5")
	got := lookAt(t, w, "apptainer.program")
	expect(t, "program", got, "skip the module apptainer/1.4.5 has it")
	if !strings.Contains(got[0].Do, `modules = ["apptainer/1.4.5"] in a profile`) {
		t.Error(got[0].Do)
	}
	w = where(t)
	w.Getenv = func(n string) string { return map[string]string{"PATH": "/usr/bin:/bin"}[n] }
	put(t, w, "/etc/profile.d/ends.sh", "exit 1\n")
	put(t, w, "/etc/profile.d/zz-site.sh", "echo apptainer/welcome\nmodule() { echo apptainer/1.4.5; }\n")
	got = lookAt(t, w, "modules")
	expect(t, "a file of another name", got, "ok it has apptainer/1.4.5; "+w.path("/etc/profile.d/zz-site.sh")+" defines it")
	if got[0].Data["init"] != w.path("/etc/profile.d/zz-site.sh") {
		t.Error(got[0].Data)
	}
	w = where(t)
	expect(t, "none", lookAt(t, w, "modules"), "skip no module system")
	w.Profile.Modules = []string{"apptainer"}
	expect(t, "none, and named", lookAt(t, w, "modules"), "fail the profile names modules")
}

func TestImage(t *testing.T) {
	w := where(t)
	dir := t.TempDir()
	for name, text := range map[string][]byte{"good.sif": siftest.New(uuid.New(), nil), "bad.sif": bytes.Repeat([]byte("x"), 200)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"good.sif": "ok good.sif", "bad.sif": "fail is no SIF", "none.sif": "fail cannot be read", "": "fail is a directory"} {
		w.Profile.Image = filepath.Join(dir, name)
		expect(t, name, lookAt(t, w, "image"), want)
	}
	w.Profile = jobs.Profile{}
	expect(t, "no image", lookAt(t, w, "image"))
}
