package container

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"berth/internal/link/session"
	"berth/jobs"
)

// What the guest says of a layer that cannot be written is told, whatever the
// container program has said meanwhile.
func TestNotWritable(t *testing.T) {
	c := &Container{o: Options{Opening: &jobs.Opening{OwnPIDNamespace: true}}, stderr: newTail(io.Discard, 100)}
	_, _ = io.WriteString(c.stderr, "INFO:    fuse2fs not found\n")
	why := &session.NotWritableError{Why: "the root directory cannot be written: open /.berth-1: read-only file system"}
	err := c.startError(t.Context(), fmt.Errorf("open a session: %w", why))
	if jobs.CodeOf(err) != jobs.CodeConfig || err.Error() != "the container's writable layer is not writable: "+why.Why || !strings.Contains(jobs.HintOf(err), "read-only and gone on") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
}

// Of what the container program has said its remarks are no reason.
func TestStartErrorWithoutRemarks(t *testing.T) {
	c := &Container{o: Options{Opening: &jobs.Opening{OwnPIDNamespace: true}}, stderr: newTail(io.Discard, 400)}
	_, _ = io.WriteString(c.stderr, "INFO:    squashfuse not found\nFATAL:   file is not a valid ext3 image\nINFO:    cleaning up\n")
	err := c.startError(t.Context(), io.ErrUnexpectedEOF)
	if jobs.CodeOf(err) != jobs.CodeInfra || err.Error() != "the container did not start: FATAL:   file is not a valid ext3 image" {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
}
