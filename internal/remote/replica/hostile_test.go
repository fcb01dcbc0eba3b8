package replica_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/remote/replica"
	"berth/jobs"
	"berth/jobs/store"
	"berth/test/fakes/mirrortest"
)

func mirrorFault(verb string, rewrite func([]byte) []byte) mirrortest.Fault {
	return mirrortest.Fault{Verb: verb, Rewrite: rewrite}
}

// snapshot is every file below a directory, with its content.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			out[rel] = string(b)
			return err
		}
		out[rel] = fi.Mode().Type().String()
		return nil
	}))
	return out
}

// TestHostileAnswers: what a host says that is not to be trusted makes no file
// but those of the list, within their bounds, and no record unreadable.
func TestHostileAnswers(t *testing.T) {
	p := newPair(t)
	must(t, p.put())
	id := p.n.Spec.ID
	file := func(name, text string) string {
		return fmt.Sprintf(`{"job":%q,"name":%q,"length":%d,"size":%d}`+"\n%s", id, name, len(text), len(text), text)
	}
	exit := func(format string, args ...any) string {
		return file("exit.json", fmt.Sprintf(format, args...))
	}
	const end = `{"end":true}` + "\n"
	closed := fmt.Sprintf(`{"job":%q,"state":{}}`+"\n", id)
	good := exit(`{"version":1,"attempt":%q,"state":"completed","exit":{"started":true,"code":0}}`, p.n.Attempt.ID)
	for name, answer := range map[string]string{
		"nothing":               "",
		"no JSON":               "Welcome to the cluster!\n" + end,
		"an endless line":       strings.Repeat("x", 1<<20),
		"a name that climbs":    file("../../../../evil", "x") + closed + end,
		"an absolute name":      file("/etc/cron.d/x", "x") + closed + end,
		"the script":            file("script.sh", "x") + closed + end,
		"the job":               file("job.json", "{}") + closed + end,
		"the attempt":           file("attempt.json", "{}") + closed + end,
		"the work tree":         file("work/.git/config", "x") + closed + end,
		"taken":                 file("taken.json", `{"version":1}`) + closed + end,
		"secrets":               file("env", "x") + closed + end,
		"another job":           strings.ReplaceAll(file("stdout", "x"), id, "01a1feba-0000-7000-8000-000000000000") + closed + end,
		"no job":                `{"name":"stdout","length":1,"size":1}` + "\nx" + end,
		"a hole":                fmt.Sprintf(`{"job":%q,"name":"stdout","offset":4096,"length":1,"size":4097}`+"\nx", id) + closed + end,
		"before the beginning":  fmt.Sprintf(`{"job":%q,"name":"stdout","offset":-1,"length":1,"size":4097}`+"\nx", id) + closed + end,
		"more than its size":    fmt.Sprintf(`{"job":%q,"name":"stdout","length":3,"size":1}`+"\nxyz", id) + closed + end,
		"a huge file":           fmt.Sprintf(`{"job":%q,"name":"stdout","length":1,"size":99999999999}`+"\nx", id) + closed + end,
		"a huge piece":          fmt.Sprintf(`{"job":%q,"name":"stdout","length":99999999999,"size":99999999999}`+"\nx", id) + closed + end,
		"a negative piece":      fmt.Sprintf(`{"job":%q,"name":"stdout","length":-5,"size":1}`+"\nx", id) + closed + end,
		"less than promised":    fmt.Sprintf(`{"job":%q,"name":"stderr","length":500,"size":500}`+"\n", id),
		"half a claim":          fmt.Sprintf(`{"job":%q,"name":"claim.json","length":2,"size":20}`+"\n{}", id) + closed + end,
		"a claim of another":    file("claim.json", `{"version":1,"attempt":"x"}`) + closed + end,
		"an exit of another":    exit(`{"version":1,"attempt":"x","state":"completed"}`) + closed + end,
		"an exit that is none":  exit(`{"version":1,"attempt":%q,"state":"running"}`, p.n.Attempt.ID) + closed + end,
		"an exit of the future": exit(`{"version":99,"attempt":%q,"state":"completed"}`, p.n.Attempt.ID) + closed + end,
		"an exit of no sense":   exit(`{"version":1,"attempt"`) + closed + end,
		"a verdict of no sense": file("verdict.json", `[]`) + closed + end,
		"an exit without end":   good,
		"more and nothing":      fmt.Sprintf(`{"job":%q,"state":{"more":true}}`+"\n", id) + end,
		"after its last line":   closed + good + end,
		"a complaint":           fmt.Sprintf(`{"job":%q,"fault":{"msg":"no\u001b[2Jthing"}}`+"\n", id) + end,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			before := snapshot(t, filepath.Dir(p.here.Home()))
			p.host.Set(mirrorFault("round", func([]byte) []byte { return []byte(answer) }))
			err := p.site.Round(t.Context(), []*jobs.Record{p.rec})[0]
			if err == nil && name != "after its last line" {
				t.Error("no error")
			}
			if err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("a terminal would obey %q", err)
			}
			rec, lerr := store.LoadDir(p.rec.Dir)
			must(t, lerr)
			if s := jobs.StateOf(rec); s != jobs.StateSubmitting {
				t.Errorf("it became %s", s)
			}
			after := snapshot(t, filepath.Dir(p.here.Home()))
			for path, text := range after {
				if _, was := before[path]; !was && filepath.Base(path) != "stdout" && filepath.Base(path) != "stderr" {
					t.Errorf("it made %s: %q", path, text)
				} else if was && before[path] != text {
					t.Errorf("it changed %s", path)
				}
			}
		})
	}
	p.host.Set(mirrorFault("none", nil))
	// The names here are no links that it could be made to write through.
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("mine"), 0o600))
	must(t, os.RemoveAll(filepath.Join(p.rec.Current().Dir, "stdout")))
	must(t, os.Symlink(victim, filepath.Join(p.rec.Current().Dir, "stdout")))
	p.claim(p.n.Attempt.Created)
	p.write("stdout", strings.Repeat("theirs\n", 100))
	if err := p.round(); err == nil {
		t.Error("a link was written through")
	}
	if b, _ := os.ReadFile(victim); string(b) != "mine" {
		t.Errorf("%q", b)
	}
	// And those there are no links that it would read through.
	must(t, os.Remove(filepath.Join(p.rec.Current().Dir, "stdout")))
	must(t, os.Remove(filepath.Join(p.far, "stdout")))
	must(t, os.Symlink(victim, filepath.Join(p.far, "stdout")))
	if err := p.round(); err == nil {
		t.Error("a link was read through")
	}
}

// TestHostileArtifacts: what is no plain file in the place of artifacts is
// refused, and nothing is made elsewhere.
func TestHostileArtifacts(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"climbs":   {Name: "./../../evil", Typeflag: tar.TypeReg},
		"absolute": {Name: "/tmp/berth-evil", Typeflag: tar.TypeReg},
		"a link":   {Name: "./d", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			must(t, p.put())
			p.ends()
			before := snapshot(t, filepath.Dir(p.here.Home()))
			p.host.Set(mirrorFault("artifacts", func([]byte) []byte {
				var b bytes.Buffer
				w := tar.NewWriter(&b)
				must(t, w.WriteHeader(&tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700}))
				must(t, w.WriteHeader(&h))
				must(t, w.Close())
				return b.Bytes()
			}))
			if err := p.round(); err == nil || p.rec.Current().Exit != nil {
				t.Errorf("%v, %+v", err, p.rec.Current().Exit)
			}
			for path := range snapshot(t, filepath.Dir(p.here.Home())) {
				if _, was := before[path]; !was && (strings.Contains(path, "evil") || strings.Contains(path, "artifacts")) {
					t.Errorf("it made %s", path)
				}
			}
			if _, err := os.Lstat("/tmp/berth-evil"); err == nil {
				t.Error("it made a file elsewhere")
			}
		})
	}
}

// TestHostileSurvey: paths that could not stand in a script.
func TestHostileSurvey(t *testing.T) {
	p := newPair(t)
	for _, text := range []string{
		`{"version":1,"home":"/a\nb","node":"/n"}`, `{"version":1,"home":"rel","node":"/n"}`, `{"version":1,"home":"/a:b","node":"/n"}`, `{"version":1,"home":"/a","node":"n"}`,
		`{"version":1,"home":"/a","node":"/n\u001b"}`, `{"version":9}`, `[]`, ``, strings.Repeat("x", 2<<20),
		`{"version":1,"home":"/a","node":"/n","identity":{"User":"a\nb"}}`,
	} {
		p.host.Set(mirrorFault("survey", func([]byte) []byte { return []byte(text) }))
		if g, err := p.site.Survey(t.Context(), question()); err == nil {
			t.Errorf("%.60q gives %+v", text, g)
		}
	}
}

func question() replica.Question { return replica.Question{} }
