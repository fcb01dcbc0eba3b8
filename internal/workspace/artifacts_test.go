package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestCollectArtifacts(t *testing.T) {
	f := newFixture(t)
	work := f.repo
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o644))
	f.write(work, map[string]string{
		"out/a.csv": "aaaa", "out/sub/b.csv": "+xbb", "model.bin": "0123456789", "notes.txt": "no", "out/link.csv": "->" + secret,
		"out/inner.csv": "->a.csv", "dirlink": "->" + filepath.Dir(secret), ".git/x.csv": "never", "sub/.git/y.csv": "never", "odd\n\xe9.csv": "odd",
	})
	must(t, syscall.Mkfifo(filepath.Join(work, "out/fifo.csv"), 0o644))
	must(t, os.Chmod(filepath.Join(work, "out/sub/b.csv"), 0o4777))
	dest := filepath.Join(t.TempDir(), "new", "artifacts")
	for range 2 { // it may be repeated
		res, err := CollectArtifacts(testContext(t), work, dest, []string{"*.csv", "model.bin", "dirlink/secret", "absent/*"}, ArtifactLimits{})
		must(t, err)
		same(t, "left out", len(res.Omitted), 2)
		res.Omitted = nil
		same(t, "artifacts", res, Artifacts{
			Copied:  []Artifact{{"model.bin", 10}, {"odd\n\xe9.csv", 3}, {"out/a.csv", 4}, {"out/sub/b.csv", 2}},
			Skipped: []Skipped{{"out/fifo.csv", NoContent, "is a FIFO"}, {"out/inner.csv", NoContent, "is a symbolic link to an artifact"}, {"out/link.csv", Link, "is a symbolic link"}},
			Missing: []string{"dirlink/secret", "absent/*"},
		})
	}
	files := map[string]string{}
	must(t, filepath.WalkDir(dest, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700 | fs.ModeDir
		} else {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dest, p)
			files[rel] = string(data)
		}
		if fi.Mode() != want {
			t.Errorf("%s: %v", p, fi.Mode())
		}
		return nil
	}))
	same(t, "files", files, map[string]string{"model.bin": "0123456789", "odd\n\xe9.csv": "odd", "out/a.csv": "aaaa", "out/sub/b.csv": "bb"})
}

func TestCollectArtifactsLimits(t *testing.T) {
	f := newFixture(t)
	f.write(f.repo, map[string]string{"a": "1", "b": "22", "c": "333", "d/e": "1"})
	paths := func(limits ArtifactLimits) (copied, skipped []Path) {
		res, err := CollectArtifacts(testContext(t), f.repo, t.TempDir(), []string{"a", "b", "c", "d/"}, limits)
		must(t, err)
		for _, a := range res.Copied {
			copied = append(copied, a.Path)
		}
		for _, s := range res.Skipped {
			skipped = append(skipped, s.Path)
		}
		return copied, skipped
	}
	for _, tc := range []struct {
		limits          ArtifactLimits
		copied, skipped []Path
	}{
		{ArtifactLimits{FileBytes: 2}, []Path{"a", "b", "d/e"}, []Path{"c"}},
		{ArtifactLimits{TotalBytes: 4}, []Path{"a", "b", "d/e"}, []Path{"c"}},
		{ArtifactLimits{Files: 2}, []Path{"a", "b"}, []Path{"c", "d/e"}},
	} {
		copied, skipped := paths(tc.limits)
		same(t, "copied", copied, tc.copied)
		same(t, "skipped", skipped, tc.skipped)
	}
	res, err := CollectArtifacts(testContext(t), f.repo, filepath.Join(t.TempDir(), "none"), nil, ArtifactLimits{})
	must(t, err)
	same(t, "nothing asked", len(res.Copied), 0)
	if _, err := CollectArtifacts(testContext(t), f.repo, t.TempDir(), []string{"../x"}, ArtifactLimits{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// What is there already stays, in someone's directory whatever it is, else where it
// is the same; a copy needs room only for what is new.
func TestCollectArtifactsAgain(t *testing.T) {
	f := newFixture(t)
	f.write(f.repo, map[string]string{"out/a": "new", "out/b": "same", "out/c": "c"})
	for _, others := range []bool{false, true} {
		dest := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dest, "out"), 0o700))
		must(t, os.WriteFile(filepath.Join(dest, "out/a"), []byte("old"), 0o600))
		must(t, os.WriteFile(filepath.Join(dest, "out/b"), []byte("same"), 0o600))
		before, err := os.Stat(filepath.Join(dest, "out/b"))
		must(t, err)
		res, err := CollectArtifacts(testContext(t), f.repo, dest, []string{"out"}, ArtifactLimits{Others: others})
		must(t, err)
		a, err := os.ReadFile(filepath.Join(dest, "out/a"))
		must(t, err)
		if others {
			same(t, "somebody's file", string(a), "old")
			same(t, "left out", res.Skipped, []Skipped{{"out/a", Refused, "another file of that name is in " + dest}})
			same(t, "copied", res.Copied, []Artifact{{"out/b", 4}, {"out/c", 1}})
		} else {
			same(t, "its own file", string(a), "new")
			same(t, "copied", len(res.Copied), 3)
		}
		after, err := os.Stat(filepath.Join(dest, "out/b"))
		must(t, err)
		if !os.SameFile(before, after) {
			t.Error("what is there was copied again")
		}
	}
}

// A directory that git would take for a bare repository does not come whole, nor
// does a .git of any spelling, nor what was put away.
func TestCollectArtifactsObeyed(t *testing.T) {
	f := newFixture(t)
	f.write(f.repo, map[string]string{"out/HEAD": "ref: x", "out/objects/a": "a", "out/refs/a": "a", "out/config": "[core]", "sub/.GIT/config": "x", "sub/HEAD": "fine", "git-of-the-task/x": "x"})
	must(t, os.Chmod(filepath.Join(f.repo, "git-of-the-task"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(f.repo, "git-of-the-task"), 0o700) })
	dest := t.TempDir()
	res, err := CollectArtifacts(testContext(t), f.repo, dest, []string{"out", "sub", "git-of-the-task", "**"}, ArtifactLimits{})
	must(t, err)
	same(t, "left out", len(res.Skipped), 1)
	same(t, "left out", res.Skipped[0].Path, Path("out/HEAD"))
	for _, name := range []string{"out/HEAD", "sub/.GIT", "git-of-the-task"} {
		if _, err := os.Lstat(filepath.Join(dest, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dest, "sub/HEAD")); err != nil {
		t.Error(err)
	}
}
