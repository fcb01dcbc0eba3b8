package apptainer

import (
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

// What the program has said of places that did not start.
func TestFailedFor(t *testing.T) {
	for said, want := range map[string]jobs.Kind{
		"FATAL: can not open x for writing, currently in use by another process":                jobs.KindAgain,
		"FATAL: while trying to read the squashfs image":                                        jobs.KindConfig,
		"Could not write info to setgroups: Permission denied":                                  jobs.KindConfig,
		"FATAL: fuse2fs failed to mount /var/lib/x in 10s":                                      jobs.KindInfra,
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort":  jobs.KindInfra,
		"FATAL: fork/exec /usr/libexec/apptainer/bin/starter: resource temporarily unavailable": jobs.KindInfra,
		"FATAL: fuse: device not found":                                                         jobs.KindConfig,
	} {
		x := failedFor(said)
		if x == nil || x.Kind != want || x.Hint == "" || x.Msg != "" {
			t.Errorf("%s: %+v, want %v", said, x, want)
		}
		// Without a program that tells of its configuration it is the same.
		if e := Explain(run.Local{}, "/no/such/program", nil)(t.Context(), said); e == nil || e.Hint != x.Hint {
			t.Errorf("%s: %+v", said, e)
		}
	}
	if x := failedFor("exit status 1"); x != nil {
		t.Error(x)
	}
}
