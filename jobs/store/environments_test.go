package store

import (
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

// Two who remove an environment remove it once: not what someone has made in
// its place meanwhile.
func TestRemoveEnv(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "state"))
	must(t, err)
	dir := s.EnvDir("e")
	spec := func(id string) *jobs.EnvSpec {
		return &jobs.EnvSpec{Version: jobs.EnvVersion, ID: id, Name: "e"}
	}
	if _, made, err := CreateEnv(dir, *spec("one")); !made || err != nil {
		t.Fatal(made, err)
	}
	if is, made, err := CreateEnv(dir, *spec("two")); made || err != nil || is.ID != "one" {
		t.Fatal(is, made, err)
	}
	must(t, s.RemoveEnv(spec("one"), os.RemoveAll))
	must(t, s.RemoveEnv(spec("one"), os.RemoveAll)) // by someone else, before
	_, made, err := CreateEnv(dir, *spec("two"))
	if !made || err != nil {
		t.Fatal(made, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if err := s.RemoveEnv(spec("one"), os.RemoveAll); jobs.KindOf(err) != jobs.KindAgain || jobs.HintOf(err) == "" {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	must(t, s.RemoveEnv(spec("two"), os.RemoveAll))
	if left, err := os.ReadDir(s.Envs()); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if list, err := s.ListEnvs(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
