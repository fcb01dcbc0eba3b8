package private

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// privately has a home with a state directory in it, and a scratch base.
func privately(t *testing.T) (p Places, home string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"state/jobs", "state-not/x", "data", "tmp", "run", ".screen"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(home, "run"))
	return Places{State: filepath.Join(home, "state"), Base: filepath.Join(home, "tmp")}, home
}

// What is berth's is hidden below a bind, and so is what stands beside it and
// acts as the user.
func TestCovers(t *testing.T) {
	p, home := privately(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	uid := strconv.Itoa(os.Getuid())
	for _, source := range []string{home, home + "/", link, filepath.Join(home, "data", "..")} {
		covers, notes, err := p.Covers([]jobs.Mount{{Source: source, Destination: "/h", Writable: true}, {Source: filepath.Join(home, "data"), Destination: "/d"}}, "/empty")
		want := []jobs.Mount{{Source: "/empty", Destination: "/h/.screen"}, {Source: "/empty", Destination: "/h/run/berth"}, {Source: "/empty", Destination: "/h/state"},
			{Source: "/empty", Destination: "/h/tmp/berth-" + uid + "-images"}, {Source: "/empty", Destination: "/h/tmp/berth-" + uid + "-scratch"}}
		if d := cmp.Diff(want, covers); d != "" || err != nil {
			t.Errorf("%s: %v %s", source, err, d)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "berth") || !strings.Contains(notes[0], "screen") {
			t.Errorf("%q", notes)
		}
	}
	p.Allow = []string{"screen"}
	covers, _, err := p.Covers([]jobs.Mount{{Source: home, Destination: "/h"}}, "/empty")
	if err != nil || len(covers) != 4 {
		t.Errorf("%v, %v", covers, err)
	}
	if covers, notes, err := p.Covers([]jobs.Mount{{Source: filepath.Join(home, "state-not"), Destination: "/h"}}, "/empty"); covers != nil || notes != nil || err != nil {
		t.Errorf("%v, %v, %v", covers, notes, err)
	}
}

// Where it cannot be hidden, because it is what is bound, nothing is run.
func TestCoversRefused(t *testing.T) {
	p, home := privately(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(home, "state", "jobs"), link); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{p.State, filepath.Join(p.State, "jobs"), link, filepath.Join(home, "data", "..", "state")} {
		if _, _, err := p.Covers([]jobs.Mount{{Source: source, Destination: "/x"}}, "/empty"); jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// A link with a name of berth's has nothing hidden, and nothing refused: a stranger
// has made it, or a task.
func TestCoversPlanted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	p, home := privately(t)
	for _, to := range []string{"/", filepath.Join(home, "data"), "berth-" + strconv.Itoa(os.Getuid()) + "-evil"} {
		link := filepath.Join(home, "tmp", "berth-"+strconv.Itoa(os.Getuid())+"-evil")
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		if covers, _, err := p.Covers([]jobs.Mount{{Source: filepath.Join(home, "data"), Destination: "/d"}}, "/empty"); covers != nil || err != nil {
			t.Errorf("of the user's own, to %s: %v, %v", to, covers, err)
		}
		if err := os.Lchown(link, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if covers, _, err := p.Covers([]jobs.Mount{{Source: filepath.Join(home, "data"), Destination: "/d"}}, "/empty"); covers != nil || err != nil {
			t.Errorf("of a stranger's, to %s: %v, %v", to, covers, err)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
}
