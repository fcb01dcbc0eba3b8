package container

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/private"
	"berth/jobs"
)

func TestNewScratch(t *testing.T) {
	base := t.TempDir()
	s, err := NewScratch(base, "0123456789ab", lease.Self(), "/b/0001")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{s.Dir, s.Workdir(), s.Conf()} {
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, fi, err)
		}
	}
	if name := filepath.Base(s.Dir); strings.HasSuffix(name, "-0123456789ab") {
		t.Errorf("the name can be foreseen: %s", name)
	}
	again, err := NewScratch(base, "0123456789ab", lease.Self(), "/b/0001")
	if err != nil || again.Dir == s.Dir {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewScratch(open, "x", lease.Self(), "/b/0001"); jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" {
		t.Errorf("where everybody may rename it: %v", err)
	}
	if err := os.Chmod(open, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewScratch(open, "x", lease.Self(), "/b/0001"); err != nil {
		t.Error(err)
	}
	if _, err := NewScratch(filepath.Join(base, "missing"), "x", lease.Self(), "/b/0001"); err == nil || !strings.Contains(jobs.HintOf(err), "space left") {
		t.Errorf("no such base: %v", err)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(s.Dir); err == nil {
		t.Error("it is still there")
	}
}

// Where containers see the base, scratch directories are made below one that was
// there when the first of them began, and are found there and beside it.
func TestScratchHidden(t *testing.T) {
	base, mine := t.TempDir(), lease.Self()
	gone := mine
	gone.PID, gone.Start = 1<<30, "1"
	before, err := NewScratch(base, "before", gone, "/b/0001")
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := private.OwnDir(base, private.DirOf(private.Scratch))
	if err != nil {
		t.Fatal(err)
	}
	after, err := NewScratch(base, "after", gone, "/b/0001")
	if err != nil || filepath.Dir(after.Dir) != hidden {
		t.Fatalf("%+v, %v", after, err)
	}
	if err := os.Mkdir(filepath.Join(hidden, scratchName("begun")+"1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if removed := SweepUnfinished(base, "begun"); len(removed) != 1 {
		t.Errorf("%q", removed)
	}
	if removed := SweepScratch(t.Context(), base, mine); !slices.Equal(removed, []string{before.Dir, after.Dir}) {
		t.Errorf("%q", removed)
	}
	old := time.Now().Add(-2 * unfinishedFor)
	if err := os.Chtimes(hidden, old, old); err != nil {
		t.Fatal(err)
	}
	// A container has something over it, and would see another in its place.
	if removed := SweepScratch(t.Context(), base, mine); removed != nil {
		t.Errorf("%q", removed)
	}
}

// TestUnfinishedScratch: what someone leaves who was killed while it was made is
// removed when it is old.
func TestUnfinishedScratch(t *testing.T) {
	base := t.TempDir()
	for what, files := range map[string][]string{"nothing": nil, "an empty mark": {fileOwner}, "something": {"mine"}} {
		s, err := NewScratch(base, "0123456789ab", lease.Self(), "/b/0001")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(s.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(s.Dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if removed := SweepScratch(t.Context(), base, lease.Self()); removed != nil {
			t.Errorf("%s: a young one was removed: %q", what, removed)
		}
		old := time.Now().Add(-2 * unfinishedFor)
		if err := os.Chtimes(s.Dir, old, old); err != nil {
			t.Fatal(err)
		}
		if removed := SweepScratch(t.Context(), base, lease.Self()); (len(removed) == 1) != (what != "something") {
			t.Errorf("%s: removed %q", what, removed)
		}
	}
}

func TestSweepScratch(t *testing.T) {
	mine := lease.Self()
	boot, ns, _ := strings.Cut(mine.BootID, "/")
	if boot == "" || ns == "" {
		t.Fatalf("boot and namespace: %q", mine.BootID)
	}
	alive := scratchOwner{Process: mine}
	change := func(do func(*scratchOwner)) scratchOwner {
		o := alive
		do(&o)
		return o
	}
	const nobody = 1 << 30 // beyond the largest pid_max
	for _, c := range []struct {
		name  string
		owner any
		gone  bool
	}{
		{"alive", alive, false},
		{"dead", change(func(o *scratchOwner) { o.PID, o.Start = nobody, "1" }), true},
		{"number used again", change(func(o *scratchOwner) { o.Start = "1" }), true},
		{"other boot", change(func(o *scratchOwner) { o.BootID = "other/" + ns }), true},
		{"other host", change(func(o *scratchOwner) { o.Host, o.BootID = "elsewhere", "other/"+ns }), false},
		{"other host, dead", change(func(o *scratchOwner) { o.Host, o.PID = "elsewhere", nobody }), false},
		{"other namespace", change(func(o *scratchOwner) { o.BootID, o.PID = boot+"/1", nobody }), false},
		{"no boot", change(func(o *scratchOwner) { o.BootID, o.PID = "", nobody }), false},
		{"no host", change(func(o *scratchOwner) { o.Host, o.PID = "", nobody }), false},
		{"no process", change(func(o *scratchOwner) { o.PID = 0 }), false},
		{"not JSON", "owner", false},
		{"no owner", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			s, err := NewScratch(base, "0123456789ab", mine, "/b/0001")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(s.Dir, fileOwner)
			if c.owner == nil {
				err = os.Remove(file)
			} else {
				var b []byte
				if b, err = json.Marshal(c.owner); err == nil {
					err = os.WriteFile(file, b, 0o600)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			removed := SweepScratch(t.Context(), base, mine)
			if _, err := os.Lstat(s.Dir); c.gone != (err != nil) || c.gone != (len(removed) == 1) {
				t.Errorf("removed %q, want gone %v", removed, c.gone)
			}
		})
	}
}

// While a program that its owner has left behind still writes there, a directory
// is not removed, or not wholly: who sweeps next knows it again.
func TestSweepWrittenTo(t *testing.T) {
	mine := lease.Self()
	base := t.TempDir()
	gone := lease.Process{Host: mine.Host, BootID: mine.BootID, PID: 1 << 30, Start: "1"}
	s, err := NewScratch(base, "0123456789ab", gone, "/b/0001")
	if err != nil {
		t.Fatal(err)
	}
	busy := errors.New("directory not empty")
	for name, remove := range map[string]func(string) error{
		"all the time": func(string) error { return busy },
		"behind us": func(path string) error {
			return errors.Join(os.RemoveAll(path), os.WriteFile(filepath.Join(s.Dir, "late"), nil, 0o600))
		},
	} {
		if err := removeScratch(s.Dir, remove); err == nil {
			t.Errorf("%s: it is said to be gone", name)
		}
		if found := AbandonedScratch(base, mine); len(found) != 1 {
			t.Errorf("%s: whose it is has been forgotten", name)
		}
	}
	if removed := SweepScratch(t.Context(), base, mine); len(removed) != 1 {
		t.Error("it was not removed in the end")
	}
	if _, err := os.Lstat(s.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What only looks like a scratch directory stays, and nothing is followed.
func TestSweepForeign(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	mine := lease.Self()
	s, err := NewScratch(base, "dead", mine, "/b/0001")
	if err != nil {
		t.Fatal(err)
	}
	dead, err := json.Marshal(scratchOwner{Process: lease.Process{Host: mine.Host, BootID: "other/1", PID: 1, Start: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	prefix := strings.TrimSuffix(s.Dir, "dead")
	keep := []string{filepath.Join(base, "berth-1-other-user"), filepath.Join(base, "something"), outside}
	for _, dir := range append(keep, s.Dir) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fileOwner), dead, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A planted link, a file, and a link inside of what is removed.
	if err := os.Symlink(outside, prefix+"link"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prefix+"file", dead, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(s.Dir, "w", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, "w", "locked", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(s.Dir, "w", "locked"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // and one of someone else's
		other := prefix + "foreign"
		keep = append(keep, other)
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, fileOwner), dead, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(other, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	if removed := SweepScratch(t.Context(), base, mine); len(removed) != 1 || removed[0] != s.Dir {
		t.Errorf("removed %q", removed)
	}
	for _, dir := range keep {
		if _, err := os.Stat(filepath.Join(dir, fileOwner)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"link", "file"} {
		if _, err := os.Lstat(prefix + name); err != nil {
			t.Error(err)
		}
	}
	if removed := SweepScratch(t.Context(), filepath.Join(base, "missing"), mine); removed != nil {
		t.Errorf("removed %q", removed)
	}
}

func TestStartTime(t *testing.T) {
	if got := lease.StartTime(os.Getpid()); got == "" || got == lease.UnknownStart {
		t.Errorf("of this process: %q", got)
	}
	if got := lease.StartTime(1 << 30); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}

func TestScratchBase(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a,b")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		profile, tmpdir, want, err string
	}{
		{tmpdir: dir, want: dir},
		{profile: dir, tmpdir: "/", want: dir},
		{profile: "$TMPDIR/", tmpdir: dir, want: dir},
		{profile: "${TMPDIR}", tmpdir: dir, want: dir},
		{profile: "$TMPDIR", err: "names $TMPDIR, which is not set"},
		{profile: dir + "/missing", err: "is not on this node"},
		{profile: "relative", err: "is not an absolute path"},
		{profile: odd, err: "without ':' and ','"},
		{tmpdir: odd},              // not taken
		{tmpdir: "relative"},       // not taken
		{tmpdir: dir + "/missing"}, // not taken
		{},
	} {
		got, err := ScratchBase(c.profile, func(name string) string {
			if name == "TMPDIR" {
				return c.tmpdir
			}
			return ""
		})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || jobs.KindOf(err) != jobs.KindConfig {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || (c.want != "" && got != c.want) || (c.want == "" && got != "/tmp" && got != "/var/tmp"):
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func vars(name string) string {
	return map[string]string{"USER": "alice", "SLURM_JOB_ID": "17", "ODD": "/a b/$USER"}[name]
}

func TestExpandVars(t *testing.T) {
	for in, want := range map[string]string{
		"/scratch/$USER/$SLURM_JOB_ID": "/scratch/alice/17",
		"/scratch/${USER}x":            "/scratch/alicex",
		"/scratch/$USER-$USER.d":       "/scratch/alice-alice.d",
		"$ODD":                         "/a b/$USER", // not a second time
		"/a/$(id)/`id`/~/*/$1":         "/a/$(id)/`id`/~/*/$1",
		"/a/${USER:-x}":                "", // a ':' stays
		"/a//b/../c/":                  "/a/c",
		"/a/${USER":                    "/a/${USER",
		"/a/$NOBODY":                   "",
		"$USER":                        "",
		"":                             "",
	} {
		got, err := expandVars(in, vars)
		if (want == "") != (err != nil) || got != want {
			t.Errorf("expandVars(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func FuzzExpandVars(f *testing.F) {
	for _, s := range []string{"/a/$USER", "${USER}", "$", "${", "$$", "/$ODD/x", "/a:b", "/\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := expandVars(s, vars)
		if err != nil {
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || strings.ContainsAny(got, ":,") {
			t.Errorf("expandVars(%q) = %q", s, got)
		}
		if !strings.Contains(s, "$") && got != filepath.Clean(s) {
			t.Errorf("without a variable, %q became %q", s, got)
		}
	})
}

// TestSweepUnfinished: whoever knows that no one else is at work with a tail
// need not wait until what was begun is old; what is someone's stays.
func TestSweepUnfinished(t *testing.T) {
	base := t.TempDir()
	whole, err := NewScratch(base, "aaaa", lease.Self(), "/x")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	for what, tail := range map[string]string{"empty": "aaaa", "without a word": "aaaa", "something": "aaaa", "another": "bbbb"} {
		dirs[what] = filepath.Join(base, scratchName(tail)+strconv.Itoa(len(dirs)))
		if err := os.Mkdir(dirs[what], 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for what, name := range map[string]string{"without a word": fileOwner, "something": "w"} {
		if err := os.WriteFile(filepath.Join(dirs[what], name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if removed := SweepUnfinished(base, "aaaa"); len(removed) != 2 {
		t.Errorf("removed %q", removed)
	}
	for _, dir := range []string{whole.Dir, dirs["something"], dirs["another"]} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
