package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

// A number is one child's, whoever comes first, and what cannot be read is an error: it
// would not be counted.
func TestChildren(t *testing.T) {
	dir := t.TempDir()
	id := func(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }
	for n := 1; n <= 3; n++ {
		if won, err := AddChild(dir, jobs.Child{Version: 1, Number: n, Job: id(n), Script: "#!/bin/sh", Command: jobs.Command{Shell: "true"}}); err != nil || !won {
			t.Fatal(won, err)
		}
	}
	if won, err := AddChild(dir, jobs.Child{Version: 1, Number: 3, Job: id(9)}); err != nil || won {
		t.Error(won, err)
	}
	for _, n := range []int{0, -1, jobs.MaxChildren + 1} {
		if _, err := AddChild(dir, jobs.Child{Version: 1, Number: n, Job: id(1)}); err == nil {
			t.Errorf("number %d was taken", n)
		}
	}
	if err := SetChildRefused(dir, 2, "the queue\nis full"); err != nil || ChildRefused(dir, 2) != "the queue is full" || ChildRefused(dir, 1) != "" {
		t.Errorf("%q, %v", ChildRefused(dir, 2), err)
	}
	if all, err := LoadChildren(dir, nil); err != nil || len(all) != 3 || all[2].Job != id(3) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := LoadChildren(dir, nil); err != nil || all[0].Script != "" || !all[0].Command.Empty() {
		t.Errorf("what they run is kept: %+v, %v", all, err)
	}
	if c, err := LoadChild(dir, 1); err != nil || c.Script == "" || c.Command.Empty() {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.WriteFile(filepath.Join(dir, dirChildren, "0002.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := LoadChildren(dir, nil); err == nil {
		t.Errorf("%+v", all)
	}
	// Those that are known are not read again.
	if all, err := LoadChildren(dir, []jobs.Child{{Number: 1}, {Number: 2}}); err != nil || len(all) != 3 || all[2].Job != id(3) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := LoadChildren(t.TempDir(), nil); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
