package workspace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A manifest is read in terminals; nothing in it acts on them.
func TestManifestIsPrintable(t *testing.T) {
	f := newFixture(t)
	f.commit(map[string]string{"a": "1\n"})
	f.prepare()
	names := []string{"evil\u202efdp.exe", "zero\u200bwidth", "bell\a\x1b[2J\x7f", "c1\u009b31m", "nbsp\u00a0", "tag\U000e0041",
		"private\ue000\U000f0000", "line\u2028\u2029", "unassigned\U000e0fff", "filler\u3164\u034f\ufe0f", "soft\u00adhyphen",
		"new\nline", "not\xffutf8", `\u202e`, "\"quoted", "größe 漢字 😀", "replacement\ufffd"}
	files := map[string]string{}
	for _, n := range names {
		files[n] = n + " is its content\n"
	}
	files["link"] = "->to\u202ethere"
	f.write(f.work(), files)
	scope, err := ParseScope([]string{"a"})
	must(t, err)
	res := f.collect(CollectOptions{Scope: scope})
	text, err := os.ReadFile(filepath.Join(f.attempt, ManifestFile))
	must(t, err)
	for _, r := range string(text) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%U is in the manifest", r)
		}
	}
	for _, want := range []string{`"evil\u202efdp.exe"`, `"tag\udb40\udc41"`, `"zero\u200bwidth"`, `"target": "to\u202ethere"`, "größe 漢字 😀", `filler\u3164\u034f\ufe0f`, `"\\u202e"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in the manifest", want)
		}
	}
	var back Result
	must(t, json.Unmarshal(text, &back))
	for i := range res.Files {
		res.Files[i].id = ""
	}
	same(t, "read again", back, res)
	for _, n := range names {
		if !slices.Contains(back.OutOfScope, Path(n)) {
			t.Errorf("%q is lost", n)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add("a\u202eb\xff")
	f.Fuzz(func(t *testing.T, name string) {
		want := Result{Files: []Change{{Path: Path(name), Target: Path(name)}}, OutOfScope: []Path{Path(name)}, Skipped: []Skipped{{Path: Path(name)}}}
		text, err := want.manifest()
		must(t, err)
		var back Result
		must(t, json.Unmarshal(text, &back))
		same(t, "read again", back, want)
		if strings.ContainsFunc(string(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !utf8.Valid(text) {
			t.Errorf("%q", text)
		}
	})
}
