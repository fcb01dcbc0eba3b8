package run_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

func TestOnTerminal(t *testing.T) {
	var out bytes.Buffer
	exit, err := run.OnTerminal(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "cut -d' ' -f5 /proc/$$/stat; read x; exit 7"}, Stdout: &out})
	if err != nil || exit.Code != 7 {
		t.Errorf("%+v, %v", exit, err)
	}
	if group := strings.TrimSpace(out.String()); group != strconv.Itoa(syscall.Getpgrp()) {
		t.Errorf("it ran in the group %s, not in ours", group)
	}
	if _, err := run.OnTerminal(t.Context(), jobs.Cmd{Argv: []string{"/nowhere/at/all"}}); err == nil {
		t.Error("a program that is not there was started")
	}
	if _, err := run.OnTerminal(t.Context(), jobs.Cmd{}); err == nil {
		t.Error("nothing was started")
	}
}

// What a program wrote is there, however long its receiver takes.
func TestOnTerminalSlow(t *testing.T) {
	w := &slow{wait: time.Second}
	exit, err := run.OnTerminal(t.Context(), jobs.Cmd{Argv: []string{"head", "-c", "60000", "/dev/zero"}, Stdout: w})
	if err != nil || !exit.OK() || w.n != 60000 {
		t.Errorf("%+v, %v, %d bytes", exit, err, w.n)
	}
}

// What a program leaves behind with its output open does not hold it up.
func TestOnTerminalLeftovers(t *testing.T) {
	var out bytes.Buffer
	begun := time.Now()
	exit, err := run.OnTerminal(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "sleep 300 & echo $!"}, Stdout: &out})
	if pid, bad := strconv.Atoi(strings.TrimSpace(out.String())); bad == nil {
		defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	}
	if err != nil || !exit.OK() || time.Since(begun) > time.Minute {
		t.Errorf("%+v, %v after %v", exit, err, time.Since(begun))
	}
}

func TestOnTerminalEnds(t *testing.T) {
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { stop(why) })
	if _, err := run.OnTerminal(ctx, jobs.Cmd{Argv: []string{"sleep", "300"}}); !errors.Is(err, why) {
		t.Error(err)
	}
}

// One receiver of both outputs gets them in the order in which they were written,
// and by no one else at the same time.
func TestOnTerminalOneReceiver(t *testing.T) {
	var out bytes.Buffer
	exit, err := run.OnTerminal(t.Context(), jobs.Cmd{Argv: []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo a; echo b >&2; done"}, Stdout: &out, Stderr: &out})
	if err != nil || !exit.OK() || out.String() != strings.Repeat("a\nb\n", 9) {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
}
