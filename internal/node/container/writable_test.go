package container

import (
	"context"
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

// The line of a site's configuration that is the reason is named, with its hint.
func TestStartErrorExplained(t *testing.T) {
	const words = "WARNING: Ignoring /n bind mount\nFATAL:   stat /.berth/node: no such file"
	o := &jobs.Opening{OwnPIDNamespace: true}
	c := &Container{o: Options{Opening: o}, stderr: newTail(io.Discard, 400)}
	_, _ = io.WriteString(c.stderr, words+"\n")
	told := ""
	o.Explain = func(_ context.Context, said string) *jobs.Error {
		told = said
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "/c:12: user bind control = no", Hint: "ask the site"}
	}
	const want = "the container did not start: WARNING: Ignoring /n bind mount; FATAL:   stat /.berth/node: no such file (/c:12: user bind control = no)"
	err := c.startError(t.Context(), io.ErrUnexpectedEOF)
	if told != words || jobs.CodeOf(err) != jobs.CodeConfig || err.Error() != want || jobs.HintOf(err) != "ask the site" {
		t.Errorf("%q: %v (%s)", told, err, jobs.HintOf(err))
	}
	o.Explain = func(context.Context, string) *jobs.Error { return nil }
	if err := c.startError(t.Context(), io.ErrUnexpectedEOF); jobs.CodeOf(err) != jobs.CodeInfra {
		t.Errorf("nothing is known to be why: %v", err)
	}
}
