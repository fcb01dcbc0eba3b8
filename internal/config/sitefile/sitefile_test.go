package sitefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
)

// at puts a site file in place of the machine's.
func at(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "site.toml")
	was, owner := Path, Owner
	Path, Owner = path, uint32(os.Getuid())
	t.Cleanup(func() { Path, Owner = was, owner })
	if text != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

const whole = `# all keys
[site]
tasks_here = false
level = "egress"
poll = "30s"
contact = "hpc@example.org"

[network]
allow = ["@pip", "example.org:443"]
deny = ["*.example.net"]
via = ["node", "proxy"]

[jobs]
max_submitted = 100
max_time = "24h"
max_cpus = 32
max_memory = "64GiB"
max_gpus = 2

[review]
by = "other"
max_waiting_reviews = 3

[mcp]
confirm = "always"
`

func TestRead(t *testing.T) {
	at(t, "")
	if f, err := Read(); f != nil || err != nil || Poll() != DefaultPoll {
		t.Errorf("without one: %+v, %v", f, err)
	}
	path := at(t, whole)
	f, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if !f.Elsewhere || f.Level != jobs.LevelEgress || f.Poll != 30*time.Second || Poll() != f.Poll || f.Bound.Mode != jobs.NetworkAllow || f.Limits.Time != 24*time.Hour {
		t.Errorf("%+v", f)
	}
	var shown []string
	for _, k := range f.Keys() {
		shown = append(shown, k.Name+" = "+k.Value)
	}
	if len(shown) != 15 || !slices.Contains(shown, "review.by = other") || !slices.Contains(shown, "jobs.max_memory = 64GiB") || !slices.Contains(shown, "network.allow = @pip example.org:443") {
		t.Errorf("%q", shown)
	}
	for text, want := range map[string]string{
		"[site]\ntask_here = false\n":                     path + ":2: unknown key \"task_here\" in [site]: did you mean \"tasks_here\"?",
		"[site]\nlevel = \"none\"\n":                      "site.level must be",
		"[site]\npoll = \"1s\"\n":                         "site.poll must be from 2s to 10m0s, found 1s",
		"[site]\ntasks_here = \"no\"\n":                   "site.tasks_here must be true or false",
		"[jobs]\nmax_running = 3\n":                       "how many run at once is for the scheduler",
		"[network]\nallow = [\"ex ample\"]\n":             "network.allow[0] is no rule of a network",
		"[network]\ndeny = [\"a.example.org\"]\n":         `network.deny needs mode = "allow"`,
		"[network]\nallow = []\nvia = [\"relay\"]\n":      "network.via[0] must be",
		"[network]\nvia = []\n":                           "names no way out",
		"[network]\nmode = \"none\"\nallow = [\"a.b\"]\n": `network.allow does not go with mode = "none"`,
		"tasks_here = false\n":                            `did you mean "tasks_here" in [site]?`,
		"[site\n":                                         path + ":1",
	} {
		at := path
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		Path = at
		if f, err := Read(); f != nil || jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if Poll() != DefaultPoll {
			t.Errorf("%q: a broken file has a pace", text)
		}
	}
}

// What others than root could have written says nothing, and is not taken for absent.
func TestTrusted(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(path string) error
		want string
	}{
		"another's":           {func(string) error { Owner++; return nil }, "belongs to another user than root"},
		"of a group":          {func(p string) error { return os.Chmod(p, 0o664) }, "it can be written by others (mode 0664)"},
		"of all":              {func(p string) error { return os.Chmod(p, 0o646) }, "it can be written by others"},
		"in an open place":    {func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, "its directory"},
		"a directory":         {func(p string) error { return replace(p, func() error { return os.Mkdir(p, 0o755) }) }, "is not a regular file"},
		"a FIFO":              {func(p string) error { return replace(p, func() error { return syscall.Mkfifo(p, 0o644) }) }, "is not a regular file"},
		"a link to nothing":   {func(p string) error { return replace(p, func() error { return os.Symlink("/nowhere/at/all", p) }) }, "is a link to nothing"},
		"too large":           {func(p string) error { return os.Truncate(p, 2<<20) }, "has more than"},
		"below what is no":    {func(p string) error { Path = p + "/site.toml"; return nil }, "cannot be read"},
		"a link to elsewhere": {elsewhere, "its directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := at(t, "[site]\ntasks_here = false\n")
			if err := c.do(path); err != nil {
				t.Fatal(err)
			}
			f, err := Read()
			if f != nil || jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), c.want) || !strings.Contains(jobs.HintOf(err), "ls -lLd") {
				t.Errorf("%v, %v", f, err)
			}
		})
	}
	// One that the owner alone can change may be a link: where files are put by a program.
	path := at(t, "[site]\ntasks_here = false\n")
	Path = filepath.Join(t.TempDir(), "site.toml")
	if err := os.Symlink(path, Path); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(); err != nil || !f.Elsewhere {
		t.Errorf("%v, %v", f, err)
	}
}

func replace(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

// elsewhere has the file be a link into a directory that all can write.
func elsewhere(path string) error {
	dir := filepath.Join(filepath.Dir(path), "open")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, "site.toml")); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(dir, "site.toml"), path)
}

func TestHold(t *testing.T) {
	place := func(change func(*jobs.Place)) *jobs.Place {
		p := &jobs.Place{Scheduler: jobs.SchedulerSlurm, Backend: jobs.BackendOfClusters, Level: jobs.LevelEgress, Network: jobs.Network{Mode: jobs.NetworkNone}}
		change(p)
		return p
	}
	for name, c := range map[string]struct {
		text   string
		change func(*jobs.Place)
		want   string // "" is that it is allowed
		hint   string
	}{
		"as asked":       {whole, func(*jobs.Place) {}, "", ""},
		"here":           {whole, func(p *jobs.Place) { p.Scheduler = jobs.SchedulerLocal }, "no tasks run on this machine itself: site.tasks_here of the site file", "--scheduler slurm; questions: hpc@example.org"},
		"no scheduler":   {whole, func(p *jobs.Place) { p.Scheduler = "" }, "no tasks run on this machine itself", "--scheduler slurm"},
		"open":           {whole, func(p *jobs.Place) { p.Level, p.Network.Mode = jobs.LevelFS, "" }, "the level of a place is egress at least, and this one's is fs", "--network none"},
		"another kernel": {whole, func(p *jobs.Place) { p.Level, p.Network.Mode = jobs.LevelVM, "" }, "and this one's is vm", "--network none"},
		"bare":           {"[site]\nlevel = \"fs\"\n", func(p *jobs.Place) { p.Level = jobs.LevelNone }, "the level of a place is fs at least, and this one's is none", "--backend "},
		"fs":             {"[site]\nlevel = \"fs\"\n", func(p *jobs.Place) { p.Level, p.Network.Mode = jobs.LevelFS, "" }, "", ""},
		"its way":        {whole, func(p *jobs.Place) { p.Network = jobs.Network{Mode: jobs.NetworkAllow, Via: jobs.ViaLogin} }, `the way out "login" is not allowed: it may be node, proxy: network.via of the site file`, "berth config set network.via node"},
		"a proxy": {whole, func(p *jobs.Place) {
			p.Network = jobs.Network{Mode: jobs.NetworkAllow, Via: jobs.ViaProxy + "http://p:3128"}
		}, "", ""},
		"time":   {whole, func(p *jobs.Place) { p.Resources.Time = 25 * time.Hour }, "the job asks for time = 25h, and one may have 24h: jobs.max_time of the site file", "ask for less: --time"},
		"cpus":   {whole, func(p *jobs.Place) { p.Resources.CPUs, p.Resources.Tasks = 8, 5 }, "cpus = 40, and one may have 32", "--cpus"},
		"memory": {whole, func(p *jobs.Place) { p.Resources.Memory, p.Resources.Nodes = 33*jobs.GiB, 2 }, "memory = 66GiB, and one may have 64GiB", "--memory"},
		"gpus":   {whole, func(p *jobs.Place) { p.Resources.GPUs = "a100:4" }, "gpus = 4, and one may have 2", "--gpus"},
		"the most": {whole, func(p *jobs.Place) {
			p.Resources = jobs.Resources{Time: 24 * time.Hour, CPUs: 32, Memory: 64 * jobs.GiB, GPUs: "2"}
		}, "", ""},
	} {
		path := at(t, c.text)
		f, err := Read()
		if err != nil {
			t.Fatal(err)
		}
		err = f.Hold(place(c.change), false)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path+":") || !strings.Contains(jobs.HintOf(err), c.hint) {
			t.Errorf("%s: %v; %s", name, err, jobs.HintOf(err))
		}
	}
	// Images are fetched by a job of berth's own, without a container.
	at(t, whole)
	f, _ := Read()
	if err := f.Hold(place(func(p *jobs.Place) { p.Level, p.Network = jobs.LevelNone, jobs.Network{} }), true); err != nil {
		t.Error(err)
	}
	if err := f.Submitted(99); err != nil {
		t.Error(err)
	}
	if err := f.Submitted(100); !strings.Contains(err.Error(), "100 of your jobs have not ended, and 100 may be submitted at once: jobs.max_submitted") {
		t.Error(err)
	}
	if err := f.Waiting(2); err != nil {
		t.Error(err)
	}
	if err := f.Waiting(3); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "3 results of your jobs wait for a review, and 3 may: review.max_waiting_reviews of the site file "+f.Path+":22") {
		t.Error(err)
	}
	if err := f.RefuseOwnReview("job x is not merged: why", "do"); !f.OtherReviews() || !strings.Contains(err.Error(), "why, and another account has to: review.by of the site file "+f.Path+":21") {
		t.Error(err)
	}
	for said, want := range map[string][3]bool{"": {true, true, false}, ConfirmAlways: {true, true, true}, ConfirmNever: {false, true, false}} {
		for i, f := range []*File{nil, f, {Confirm: ConfirmNever}} {
			if got := f.Confirms(said); got != want[i] {
				t.Errorf("a user says %q, and the file %+v: confirmed is %v", said, f, got)
			}
		}
	}
	if m := f.Most(jobs.Most{Memory: jobs.GiB, Time: 48 * time.Hour}); m.Memory != jobs.GiB || m.Time != 24*time.Hour || m.TimeWhy != "the site file "+f.Path {
		t.Errorf("%+v", m)
	}
	// A network is narrowed where it is planned, and where that was on another machine.
	p := place(func(p *jobs.Place) { p.Level, p.Network = jobs.LevelFS, jobs.Network{} })
	p.Backend = jobs.BackendOfClusters
	if err := f.HoldHere(p, false); err != nil || p.Level != jobs.LevelEgress || p.Network.Mode != jobs.NetworkAllow || len(p.Network.Bounds) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := f.HoldHere(p, false); err != nil || len(p.Network.Bounds) != 1 || p.Network.NarrowedBy() != "site file "+f.Path {
		t.Errorf("again: %+v, %v", p.Network, err)
	}
	p = place(func(p *jobs.Place) { p.Level, p.Network, p.Resources.Tasks = jobs.LevelFS, jobs.Network{}, 2 })
	if err := f.HoldHere(p, false); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "planned where this bound of its network is not said: network.allow") {
		t.Error(err)
	}
	var none *File
	if none.Hold(place(func(p *jobs.Place) { p.Scheduler, p.Level = "", jobs.LevelNone }), false) != nil || none.Submitted(1e6) != nil || none.Waiting(1e6) != nil || none.OtherReviews() || none.Here(&jobs.Place{}) != nil || none.Keys() != nil {
		t.Error("without a file something is refused")
	}
}

// TestCaps: a task may have no more than the site says, has what it says where it says
// nothing itself, and asks no model without one; also where it was planned elsewhere.
func TestCaps(t *testing.T) {
	at(t, "[caps]\nmax_usd = 5\nmax_requests = 100\nmax_wall = \"2h\"\nmax_output = \"1GiB\"\nmax_turns = 50\n")
	f, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	p := jobs.Place{Credentials: []jobs.Credential{{Name: "a", API: jobs.APIAnthropic}}, Caps: jobs.Caps{Requests: 7}}
	f.Bind(&p)
	if want := (jobs.Caps{Requests: 7, USD: 5, Wall: 2 * time.Hour, Output: jobs.GiB}); fmt.Sprintf("%+v", p.Caps) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v", p.Caps)
	}
	p.Caps = jobs.Caps{}
	if err := f.HoldHere(&p, false); err != nil || p.Caps.USD != 5 {
		t.Errorf("%+v %v", p.Caps, err)
	}
	none := jobs.Place{}
	if f.Bind(&none); none.Caps.Wall != 0 || none.Caps.USD != 0 {
		t.Errorf("%+v", none.Caps)
	}
	for _, c := range []jobs.Caps{{USD: 5.01}, {Requests: 101}, {Wall: 3 * time.Hour}, {Output: 2 * jobs.GiB}, {Turns: 51}} {
		p.Caps = c
		if err := f.Hold(&p, false); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "caps.max_") || !strings.Contains(err.Error(), "site.toml:") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	at(t, "[caps]\nmax_usd = -1\n")
	if _, err := Read(); err == nil {
		t.Error("a negative cap")
	}
}
