package sweep

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sys/ids"
	"berth/jobs/store"
)

// What killed commands have left is found, and what may still be used, or is no remainder, is not.
func TestRemains(t *testing.T) {
	root := t.TempDir()
	s := made(t, root, "s", 3)
	id, err := ids.New()
	must(t, err)
	killed := filepath.Join(filepath.Dir(s.Dir), prefixNew+id+"-123")
	other := filepath.Join(filepath.Dir(s.Dir), prefixNew+"mine")
	lost, offsets := filepath.Join(s.Dir, "tasks.2.killed.jsonl"), filepath.Join(s.Dir, "tasks.2.killed.offsets")
	for _, d := range []string{killed, other} {
		must(t, os.Mkdir(d, 0o700))
	}
	for _, f := range []string{lost, offsets} {
		must(t, os.WriteFile(f, nil, 0o600))
	}
	_, worker, err := s.NewWorker()
	must(t, err)
	beat, box := filepath.Join(worker, claims.BeatFile), filepath.Join(worker, BoxDir+".7")
	must(t, os.WriteFile(beat, nil, 0o600))
	for _, d := range []string{box, filepath.Join(worker, BoxDir)} { // the second one is a record of the worker
		must(t, os.Mkdir(d, 0o700))
	}
	now := time.Now()
	if all := Remains(root, now); len(all) != 0 {
		t.Errorf("%q may still be made", all)
	}
	if all := Remains(root, now.Add(25*time.Hour)); len(all) != 4 || all[0] != killed || all[3] != box {
		t.Errorf("%q", all)
	}
	must(t, os.Chtimes(beat, now.Add(24*time.Hour), now.Add(24*time.Hour)))
	if all := Remains(root, now.Add(25*time.Hour)); slices.Contains(all, box) {
		t.Errorf("%s is of a worker that lives", box)
	}
	_, err = s.AddRound(Round{Kind: RoundAdd}, 1, func(_ *Round, add func(command.Task) error) error { return add(command.Task{ID: command.ID{1}}) })
	must(t, err)
	if files, _ := filepath.Glob(filepath.Join(s.Dir, "tasks.*")); len(files) != 4 {
		t.Errorf("%q", files)
	}
	must(t, os.Chtimes(beat, now, now))
	must(t, os.WriteFile(filepath.Join(box, store.FileUsage), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(box, "env.json"), nil, 0o600))
	for _, path := range Remains(root, now.Add(25*time.Hour)) {
		must(t, Clean(path))
	}
	if files, err := os.ReadDir(box); err != nil || len(files) != 1 || len(Remains(root, now.Add(25*time.Hour))) != 0 {
		t.Errorf("what tasks have asked models for is to stay, and no more: %v %v", files, err)
	}
	if again, err := Open(s.Dir); err != nil || again.Total() != 4 {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(killed); err == nil {
		t.Errorf("%s is there", killed)
	}
}
