package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	made := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		must(t, os.Mkdir(p, 0o700))
		must(t, os.Chmod(p, mode))
		return p
	}
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	theirs := made("theirs", 0o700)
	cases := map[string]struct {
		home string
		code int
		text string
	}{
		"relative":           {"state", jobs.CodeUsage, "not an absolute path"},
		"empty":              {"", jobs.CodeUsage, "not an absolute path"},
		"colon":              {filepath.Join(dir, "a:b"), jobs.CodeUsage, "':' or ','"},
		"comma":              {filepath.Join(dir, "a,b"), jobs.CodeUsage, "':' or ','"},
		"line break":         {filepath.Join(dir, "a\nb"), jobs.CodeUsage, "control character"},
		"escape":             {filepath.Join(dir, "a\x1bb"), jobs.CodeUsage, "control character"},
		"not UTF-8":          {filepath.Join(dir, "a\xffb"), jobs.CodeUsage, "UTF-8"},
		"group may enter":    {made("group", 0o710), jobs.CodeConfig, "open to other users"},
		"others may write":   {made("tmp", 0o1777), jobs.CodeConfig, "open to other users"},
		"a file":             {file, jobs.CodeInfra, "not a directory"},
		"below a file":       {filepath.Join(file, "x"), jobs.CodeInfra, "not a directory"},
		"nowhere to make it": {"/proc/none/x", jobs.CodeInfra, ""},
	}
	if os.Geteuid() == 0 { // only root can give a directory away
		must(t, os.Chown(theirs, 65534, 65534))
		cases["another owner"] = struct {
			home string
			code int
			text string
		}{theirs, jobs.CodeConfig, "belongs to another user"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Open(c.home)
			if s != nil || err == nil || jobs.CodeOf(err) != c.code || jobs.HintOf(err) == "" {
				t.Fatalf("got %v, %v, code %d, hint %q", s, err, jobs.CodeOf(err), jobs.HintOf(err))
			}
			if !strings.Contains(err.Error(), c.text) && !strings.Contains(err.Error(), "file exists") {
				t.Errorf("the error %q does not say %q", err, c.text)
			}
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q", err)
			}
			if _, err := os.Stat(filepath.Join(c.home, "jobs")); err == nil && filepath.IsAbs(c.home) {
				t.Error("something was made in it")
			}
		})
	}
}

func TestOpen(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "deep", "er", "..", "home") + "/")
	must(t, err)
	if strings.Contains(s.Home(), "..") || strings.HasSuffix(s.Home(), "/") {
		t.Error(s.Home())
	}
	again, err := Open(s.Home())
	must(t, err)
	for _, p := range []string{again.Bin(), again.Overlays(), again.Queue()} {
		if filepath.Dir(p) != s.Home() {
			t.Error(p)
		}
	}
	if list, err := again.List(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if p := s.JobDir("x"); filepath.Dir(filepath.Dir(p)) != filepath.Join(s.Home(), "jobs") {
		t.Error(p)
	}
}

// TestOpenReadOnly is about an error that root never sees.
func TestOpenReadOnly(t *testing.T) {
	if !asNobody(t) {
		return
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	_, err := Open(filepath.Join(dir, "home"))
	if jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(jobs.HintOf(err), "BERTH_HOME") {
		t.Errorf("%v, hint %q", err, jobs.HintOf(err))
	}
}

func TestFind(t *testing.T) {
	s := open(t)
	ids := []string{
		"01932d4e-5f60-7abc-8def-0123456789ab",
		"01932d4e-5f61-7abc-8def-0123456789cd",
		"02932d4e-5f61-7abc-8def-9999956789ab",
		"01932d4e-5f62-7abc-8def-000000000001", "01932d4e-5f62-7abc-8def-000000000002", "01932d4e-5f62-7abc-8def-000000000003",
	}
	for _, id := range ids {
		n := sample(t)
		n.Spec.ID = id
		_, err := s.Create(n)
		must(t, err)
	}
	// Strangers in the directories count for nothing.
	for _, p := range []string{"jobs/README", "jobs/ab/notes", "jobs/ab/.new-" + ids[0], "jobs/cd/" + ids[0]} {
		must(t, os.MkdirAll(filepath.Join(s.Home(), filepath.Dir(p)), 0o700))
		must(t, os.WriteFile(filepath.Join(s.Home(), p), nil, 0o600))
	}
	for word, want := range map[string]string{
		ids[0]: ids[0], "456789cd": ids[1], "02932": ids[2], "01932d4e-5f61": ids[1], strings.ToUpper(ids[2]): ids[2], "99956789AB": ids[2], "d": ids[1],
	} {
		r, err := s.Find(word)
		if err != nil || r.Spec.ID != want {
			t.Errorf("Find(%q) = %v, %v", word, r, err)
		}
	}
	for word, code := range map[string]int{
		"": jobs.CodeNotFound, "ff": jobs.CodeNotFound, "../ab": jobs.CodeNotFound, "*": jobs.CodeNotFound, "a\nb": jobs.CodeNotFound, "README": jobs.CodeNotFound,
		"01932d4e": jobs.CodeUsage, "56789ab": jobs.CodeUsage, "0": jobs.CodeUsage, "B": jobs.CodeUsage,
	} {
		r, err := s.Find(word)
		if r != nil || jobs.CodeOf(err) != code || jobs.HintOf(err) == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("Find(%q) = %v, %v, code %d", word, r, err, jobs.CodeOf(err))
		}
	}
	_, err := s.Find("56789ab")
	if want := fmt.Sprintf(`the job id "56789ab" is ambiguous: %s %s`, ids[0], ids[2]); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := s.Find("0"); err == nil || !strings.HasSuffix(err.Error(), "and 2 more") {
		t.Error(err)
	}
	for _, id := range []string{"", "x", "../../etc", ids[0][:35] + "g"} {
		if _, err := s.Load(id); jobs.CodeOf(err) != jobs.CodeNotFound {
			t.Errorf("Load(%q): %v", id, err)
		}
	}
}

func TestOpenBelowWritable(t *testing.T) {
	top := t.TempDir()
	shared := filepath.Join(top, "shared")
	must(t, os.Mkdir(shared, 0o700))
	must(t, os.Chmod(shared, 0o777))
	link := filepath.Join(top, "link")
	must(t, os.Symlink(shared, link))
	for _, home := range []string{filepath.Join(shared, "home"), filepath.Join(shared, "deep", "home"), filepath.Join(link, "home")} {
		_, err := Open(home)
		if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "chmod o-w") {
			t.Errorf("%s: %v", home, err)
		}
	}
	must(t, os.Chmod(shared, 0o777|os.ModeSticky)) // as /tmp is
	if _, err := Open(filepath.Join(shared, "home")); err != nil {
		t.Error(err)
	}
}
