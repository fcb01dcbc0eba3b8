package container

import (
	"os"
	"strings"
)

// LastingBase chooses the directory of a node for what several jobs of a user
// share: as [ScratchBase] does, but rather /tmp or /var/tmp than a $TMPDIR that
// the site makes for one job. jobID is that of the scheduler, or "". lasting
// tells whether later jobs will find there what this one leaves.
func LastingBase(profile string, getenv func(string) string, jobID string) (base string, lasting bool, err error) {
	if base, err = ScratchBase(profile, getenv); err != nil {
		return "", false, err
	}
	if !ofOneJob(base, jobID) {
		return base, true, nil
	}
	if profile != "" {
		return base, false, nil
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if usableBase(dir) && !InMemory(dir) && !ofOneJob(dir, jobID) {
			return dir, true, nil
		}
	}
	return base, false, nil
}

// ofOneJob tells whether a directory is a job's own: its path, or what is
// mounted there (Slurm's job_container/tmpfs mounts a directory of the job at
// /tmp), has the job's number in it: "/local/slurm.1234", "/tmp/1234/.1234".
func ofOneJob(dir, jobID string) bool {
	if jobID == "" {
		return false
	}
	named := func(path string) bool {
		for part := range strings.SplitSeq(path, "/") {
			for word := range strings.FieldsFuncSeq(part, func(r rune) bool { return strings.ContainsRune("._-", r) }) {
				if word == jobID {
					return true
				}
			}
		}
		return false
	}
	if named(dir) {
		return true
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		// "36 35 98:0 /mnt1 /mnt2 rw,noatime ...": proc(5).
		if f := strings.Fields(line); len(f) > 4 && f[4] == dir && named(f[3]) {
			return true
		}
	}
	return false
}
