package container

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLastingBase(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "slurm.4242")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	env := func(dir string) func(string) string {
		return func(name string) string { return map[string]string{"TMPDIR": dir, "SLURM_JOB_ID": "4242"}[name] }
	}
	for _, c := range []struct {
		profile, tmp, job, base string
		lasting                 bool
	}{
		{"", mine, "4242", "", true}, // not there
		{"", mine, "42", mine, true},
		{"", mine, "", mine, true},
		{filepath.Dir(mine) + "/slurm.$SLURM_JOB_ID", "", "4242", mine, false},
		{filepath.Dir(mine), mine, "4242", filepath.Dir(mine), true},
	} {
		base, lasting, err := LastingBase(c.profile, env(c.tmp), c.job)
		if err != nil || c.base != "" && base != c.base || c.base == "" && base == mine && lasting || c.base != "" && lasting != c.lasting {
			t.Errorf("%+v: %s, %v, %v", c, base, lasting, err)
		}
	}
	for path, is := range map[string]bool{"/local/7": true, "/local/job_7": true, "/tmp/slurm.7.0/x": true, "/tmp/7/.7": true, "/var/lib/docker/overlay7/a7b": false, "/tmp": false, "/x/77": false} {
		if got := ofOneJob(path, "7"); got != is {
			t.Errorf("%s: %v", path, got)
		}
	}
}
