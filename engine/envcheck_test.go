package engine

import (
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

// A command that may write a directory must not decide what another bind shows.
func TestCheckMounts(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/b", "ab"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a", "b"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	at := func(path string, writable bool) jobs.Mount {
		return jobs.Mount{Source: filepath.Join(dir, path), Destination: "/" + path, Writable: writable}
	}
	for name, c := range map[string]struct {
		mounts []jobs.Mount
		bad    bool
	}{
		"below a writable one":       {[]jobs.Mount{at("a", true), at("a/b", false)}, true},
		"the other way round":        {[]jobs.Mount{at("a/b", true), at("a", true)}, true},
		"a link to there":            {[]jobs.Mount{at("a", true), at("link", false)}, true},
		"below a read-only one":      {[]jobs.Mount{at("a", false), at("a/b", true)}, false},
		"beside it, a similar name":  {[]jobs.Mount{at("a", true), at("ab", true)}, false},
		"twice the same":             {[]jobs.Mount{at("a", true), at("a", false)}, false},
		"one that is not there, yet": {[]jobs.Mount{at("a", true), at("a/new", false)}, true},
	} {
		if err := checkMounts(c.mounts); (err != nil) != c.bad || c.bad && jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
