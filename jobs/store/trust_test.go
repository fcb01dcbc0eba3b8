package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// TestTrustedAbove has state directories in places that someone else may write.
// Only root can make those of other users.
func TestTrustedAbove(t *testing.T) {
	const bob = 65533
	mine := os.Geteuid()
	type dir struct {
		name string
		mode os.FileMode
		uid  int
		link string // instead of a directory
	}
	sub := func(name string, mode os.FileMode) dir { return dir{name: name, mode: mode, uid: mine} }
	state := sub("a/state", 0o700)
	for name, c := range map[string]struct {
		dirs  []dir
		home  string
		trust bool
		text  string // "" is accepted
	}{
		"private":                       {dirs: []dir{sub("a", 0o700), state}},
		"others may read above":         {dirs: []dir{sub("a", 0o755), state}},
		"everybody may write above":     {dirs: []dir{sub("a", 0o777), state}, text: "everybody may write"},
		"though trusted":                {dirs: []dir{sub("a", 0o777), state}, trust: true, text: "everybody may write"},
		"sticky":                        {dirs: []dir{sub("a", os.ModeSticky|0o777), state}},
		"a group may write above":       {dirs: []dir{{"a", 0o770, mine, "bob"}, state}, text: "a group may write"},
		"a trusted group":               {dirs: []dir{{"a", 0o770, mine, "bob"}, state}, trust: true},
		"a sticky group":                {dirs: []dir{{"a", os.ModeSticky | 0o770, mine, "bob"}, state}},
		"somebody else's above":         {dirs: []dir{{"a", 0o755, bob, ""}, state}, text: "belongs to another user"},
		"somebody else's sticky one":    {dirs: []dir{{"a", os.ModeSticky | 0o777, bob, ""}, state}, text: "belongs to another user"},
		"a trusted owner":               {dirs: []dir{{"a", 0o755, bob, ""}, state}, trust: true},
		"theirs further up":             {dirs: []dir{{"a", 0o755, bob, ""}, sub("a/b", 0o700), sub("a/b/state", 0o700)}, home: "a/b/state", text: "belongs to another user"},
		"a link into a private place":   {dirs: []dir{sub("a", 0o700), state, {"l", 0, mine, "-> a"}}, home: "l/state"},
		"a link through a public place": {dirs: []dir{sub("a", 0o700), state, sub("p", 0o777), {"p/m", 0, mine, "-> ../a"}, {"l", 0, mine, "-> p/m"}}, home: "l/state", text: "everybody may write"},
		"somebody else's link":          {dirs: []dir{sub("a", 0o700), state, sub("t", os.ModeSticky|0o777), {"t/l", 0, bob, "-> ../a"}}, home: "t/l/state", text: "the link"},
		"the state directory is a link": {dirs: []dir{sub("a", 0o700), state, sub("p", 0o777), {"p/s", 0, mine, "-> ../a/state"}}, home: "p/s", text: "everybody may write"},
		"a chain without an end":        {dirs: []dir{{"l", 0, mine, "-> m"}, {"m", 0, mine, "-> l"}}, home: "l/state", text: "make the state directory"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			for _, d := range c.dirs {
				if d.uid != mine && mine != 0 || d.link == "bob" && mine != 0 {
					t.Skip("only root can give a directory away")
				}
				p := filepath.Join(top, d.name)
				if to, ok := strings.CutPrefix(d.link, "-> "); ok {
					must(t, os.Symlink(to, p))
				} else {
					must(t, os.Mkdir(p, 0o700))
				}
				gid := -1
				if d.link == "bob" {
					gid = bob
				}
				if d.uid != mine || gid >= 0 {
					must(t, os.Lchown(p, d.uid, gid))
				}
				if d.mode != 0 {
					must(t, os.Chmod(p, d.mode))
				}
			}
			if c.home == "" {
				c.home = "a/state"
			}
			home := filepath.Join(top, c.home)
			if c.trust {
				must(t, os.WriteFile(filepath.Join(home, fileTrust), nil, 0o600))
			}
			_, err := Open(home)
			switch {
			case c.text == "" && err != nil, c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text) || jobs.HintOf(err) == ""):
				t.Errorf("%v, hint %q; want %q", err, jobs.HintOf(err), c.text)
			}
			if _, serr := os.Stat(filepath.Join(home, "jobs")); err != nil && serr == nil {
				t.Error("something was made in it")
			}
		})
	}
}

// TestNotTrusted: a file of someone else's does not say what the user trusts.
func TestNotTrusted(t *testing.T) {
	home := t.TempDir()
	if trusts(home) {
		t.Error("without a file")
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(home, fileTrust)))
	if trusts(home) {
		t.Error("a link")
	}
}
