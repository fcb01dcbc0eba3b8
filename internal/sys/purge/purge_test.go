package purge

import (
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

func TestOf(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"run/systemd/system/x":      "",
		"usr/lib/tmpfiles.d/a.conf": "q /tmp 1777 root root 10d\nd /var/tmp 1777 root root 30d\n",
		"etc/tmpfiles.d/a.conf":     "q /tmp 1777 root root 3d\n",
	} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	site := []jobs.Purge{{Dir: "/scratch", Days: 30}, {Dir: "/scratch/long", Days: 90}}
	for dir, want := range map[string][2]string{
		"/scratch/ada/berth": {"/scratch", "30 days"}, "/scratch/long/ada": {"/scratch/long", "90 days"}, "/scratchy": {}, "/scratch": {"/scratch", "30 days"},
		"/tmp/x": {"/tmp", "3d"}, "/var/tmp/x": {}, "/home/ada": {},
	} {
		if at, age := Of(dir, site, root); at != want[0] || age != want[1] {
			t.Errorf("%s: %q, %q", dir, at, age)
		}
	}
	if at, age := Of("/tmp/x", nil, t.TempDir()); at != "" || age != "" {
		t.Errorf("where nobody heeds them: %q, %q", at, age)
	}
}
