package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"

	"github.com/google/uuid"
)

func TestImageID(t *testing.T) {
	id := uuid.MustParse("0e1f2d3c-4b5a-4978-8695-a4b3c2d1e0f0")
	x, y := sif(t, id, "one"), sif(t, id, "one")
	got, err := ImageID(x)
	must(t, err)
	if got != "sif:"+id.String() {
		t.Error(got)
	}
	if copied, err := ImageID(y); err != nil || copied != got {
		t.Errorf("a copy is %s, %v", copied, err)
	}
	if other, err := ImageID(sif(t, uuid.New(), "one")); err != nil || other == got {
		t.Errorf("another image is %s, %v", other, err)
	}

	// Built without an id, the content tells.
	a, err := ImageID(sif(t, uuid.Nil, "one"))
	must(t, err)
	b, err := ImageID(sif(t, uuid.Nil, "two"))
	must(t, err)
	c, err := ImageID(sif(t, uuid.Nil, "one"))
	must(t, err)
	if a == b || a != c || !strings.HasPrefix(a, "sif-head:") {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

func TestImageIDRefuses(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile(sif(t, uuid.New(), ""))
	must(t, err)
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for name, content := range map[string]string{
		"empty": "", "text": "hello\n", "launch line only": string(whole[:32]), "torn": string(whole[:60]), "no magic": strings.Replace(string(whole), "MAGIC", "TRICK", 1),
		"script": "#!/usr/bin/env run-singularity\n" + strings.Repeat("x", 100), "garbage": strings.Repeat("\xff\x00", 500),
	} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		if id, err := ImageID(path); id != "" || jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), path) || jobs.HintOf(err) == "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
	for _, path := range []string{dir, fifo} {
		if id, err := ImageID(path); id != "" || jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%s: %q, %v", path, id, err)
		}
	}
	if _, err := ImageID(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestReadMark(t *testing.T) {
	dir := t.TempDir()
	if m, err := ReadMark(dir); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := ReadMark(filepath.Join(dir, "none")); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	path := filepath.Join(dir, fileMark)
	for content, text := range map[string]string{"": path, "{": path, "[1]": path, `{"version": 2}`: "newer berth"} {
		must(t, os.WriteFile(path, []byte(content), 0o600))
		if m, err := ReadMark(dir); m != nil || jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), text) || jobs.HintOf(err) == "" {
			t.Errorf("%q: %v, %v", content, m, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "deps-1.2_x": true, strings.Repeat("a", 64): true,
		"": false, ".": false, "..": false, "../x": false, "a/b": false, "A": false, "-a": false, ".a": false, "a b": false, "a\n": false, "a:b": false, "a,b": false, strings.Repeat("a", 65): false, "é": false,
	} {
		err := CheckName(name)
		if (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
		if err != nil && (jobs.CodeOf(err) != jobs.CodeUsage || strings.Contains(err.Error(), "\n")) {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}
