package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestNothingSeen: while no one looks, be it that this process is stopped or that
// a file server does not answer, no silence is heard: the owner could not have
// been, either.
func TestNothingSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	beat := filepath.Join(dir, "beat")
	if err := syscall.Mkfifo(beat, 0o600); err != nil { // which keeps its reader waiting
		t.Fatal(err)
	}
	const silent = 2 * time.Second
	p := Patience{Look: 5 * time.Millisecond, Dead: silent, Silent: silent}
	// answer is a file server's: the reader that waits gets it, and the next one
	// waits again.
	answer := func(n int) error {
		f, err := os.OpenFile(beat, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		next := beat + ".next"
		_, werr := fmt.Fprintf(f, "%010d 2026-01-01T00:00:00.000Z\n", n)
		return errors.Join(syscall.Mkfifo(next, 0o600), os.Rename(next, beat), werr, f.Close())
	}
	told := make(chan bool, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		told <- Gone(ctx, Owner{Dir: dir, Host: "elsewhere"}, Self(), p, func(string) bool { return false })
	}()
	answered := make(chan error, 1)
	go func() {
		err := answer(1)
		time.Sleep(silent + silent/2)
		// It is back, and so is the owner, a moment later.
		answered <- errors.Join(err, answer(1), answer(2))
	}()
	if <-told {
		t.Fatal("an owner counts as gone because nobody could look")
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
