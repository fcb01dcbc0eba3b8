package overlay

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An ordinary directory does everything right.
func TestTry(t *testing.T) {
	root := t.TempDir()
	if err := MakeTiny(root); err != nil {
		t.Fatal(err)
	}
	if err := TryLook(root); err == nil {
		t.Error("nothing was changed, and it was found")
	}
	if err := TryChange(root); err != nil {
		t.Fatal(err)
	}
	if err := TryLook(root); err != nil {
		t.Fatal(err)
	}
	if err := TryChange(t.TempDir()); err == nil {
		t.Error("an empty image told something")
	}
}

// What wrong layers do is found when they are opened again.
func TestTryFinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(root string) error
		want  string
	}{
		"deleted files are back": {func(root string) error {
			return os.WriteFile(filepath.Join(root, "usr/share/doc/one/a"), nil, 0o600)
		}, "has 2 entries"},
		"a moved directory is back": {func(root string) error { return os.Mkdir(filepath.Join(root, "usr/share/doc/two"), 0o700) }, "is still there"},
		"files are gone":            {func(root string) error { return os.Remove(filepath.Join(root, "usr/share/doc/two.berth-moved/c")) }, "has 0 entries"},
		"all is gone":               {func(root string) error { return os.Remove(filepath.Join(root, fileTry)) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := MakeTiny(root); err != nil {
				t.Fatal(err)
			}
			if err := TryChange(root); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(root); err != nil {
				t.Fatal(err)
			}
			if err := TryLook(root); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestMountArgv(t *testing.T) {
	m := Mount{Lower: "/a,b:c", Upper: "/u", Work: "/w", Merged: "/m", Dirs: []string{"/x y", "/--"}, Files: []string{"/f"}}
	argv := m.Argv("/node", []string{"/usr/bin/apptainer", "--", "--lower", "x"})
	if !slices.Equal(argv[:2], []string{"/node", "overlay-mount"}) {
		t.Fatal(argv)
	}
	got, rest, ok := parseMount(argv[2:])
	if !ok || got.Lower != m.Lower || got.Upper != m.Upper || got.Work != m.Work || got.Merged != m.Merged ||
		!slices.Equal(got.Dirs, m.Dirs) || !slices.Equal(got.Files, m.Files) || !slices.Equal(rest, []string{"/usr/bin/apptainer", "--", "--lower", "x"}) {
		t.Errorf("%+v %q", got, rest)
	}
	for _, line := range []string{"", "--", "-- /x", "--lower /l --upper /u --work /w -- /x", "--lower /l --upper /u --work /w --merged /m --",
		"--lower l --upper /u --work /w --merged /m -- /x", "--lower /l --upper /u --work /w --merged /m -- x", "--lower /l --upper /u --work /w --merged /m --what /x -- /x", "--lower"} {
		if _, _, ok := parseMount(strings.Fields(line)); ok {
			t.Errorf("taken: %q", line)
		}
	}
}

func TestDirID(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	if _, err := DirID(dir); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	one, err := DirID(dir)
	again, err2 := DirID(dir)
	if err != nil || err2 != nil || one != again {
		t.Fatal(one, again, err, err2)
	}
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if other, err := DirID(dir); err != nil || other == one {
		t.Errorf("a directory made anew has the same id: %v", err)
	}
	if _, err := DirID("/dev/null"); err == nil {
		t.Error("a device was taken")
	}
}
