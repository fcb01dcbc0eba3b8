package apptainer

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"berth/jobs"
)

// TestUnplant: what a task has put where the container program writes when it
// makes an image leads to nothing outside.
func TestUnplant(t *testing.T) {
	outside := t.TempDir()
	link := func(to string) func(string) error {
		return func(at string) error { return os.Symlink(to, at) }
	}
	for name, c := range map[string]struct {
		at      string
		make    func(at string) error
		refused bool
	}{
		"its directory":     {".singularity.d", link(outside), true},
		"a file of it":      {".singularity.d/labels.json", link(outside + "/x"), true},
		"a directory in it": {".singularity.d/bootstrap_history", link(outside), true},
		"a FIFO in it":      {".singularity.d/env/x.sh", func(at string) error { return syscall.Mkfifo(at, 0o600) }, true},
		"etc":               {"etc", link(outside), true},
		"var":               {"var", link(outside), true},
		"etc, inside":       {"etc", link("usr/etc"), false},
		"hosts":             {"etc/hosts", link(outside + "/x"), false},
		"systemd's":         {"etc/resolv.conf", link("../run/systemd/resolve/stub-resolv.conf"), false},
		"none":              {"srv", link(outside), false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			at := filepath.Join(root, c.at)
			if err := errors.Join(os.MkdirAll(filepath.Join(root, "usr/etc"), 0o700), os.MkdirAll(filepath.Dir(at), 0o700), c.make(at)); err != nil {
				t.Fatal(err)
			}
			err := unplant(root)
			if !c.refused {
				if err != nil {
					t.Error(err)
				}
				if fi, err := os.Lstat(at); filepath.Base(filepath.Dir(c.at)) == "etc" && (err != nil || !fi.Mode().IsRegular()) {
					t.Errorf("%v, %v", fi, err)
				}
				return
			}
			if jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
	if got, err := os.ReadDir(outside); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}
