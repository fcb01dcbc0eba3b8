//go:build linux

package session_test

import (
	"errors"
	"io"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
)

// TestLeaving has the other side leave before it has read all that was sent:
// that has not begun.
func TestLeaving(t *testing.T) {
	r, guestW := io.Pipe()
	guestR, w := io.Pipe()
	faked := make(chan error, 1)
	go func() {
		faked <- func() error {
			in, out := wire.NewReader(guestR), wire.NewWriter(guestW)
			if _, err := in.Find(wire.ClientMagic, nil); err != nil {
				return err
			}
			nonce, err := in.Nonce()
			if err != nil {
				return err
			}
			var hello wire.ClientHello
			if err := in.Hello(&hello); err != nil {
				return err
			}
			key, err := wire.KeyOf(hello.Key)
			if err != nil {
				return err
			}
			if err := out.Open(wire.GuestMagic, nonce, wire.GuestHello{Version: wire.Version}); err != nil {
				return err
			}
			in.Seal(key, wire.FromClient)
			out.Seal(key, wire.FromGuest)
			for range 2 {
				if _, err := in.Next(); err != nil {
					return err
				}
			}
			// As if the second one were still on its way.
			if err := out.Message(wire.Quit, 1, wire.EndMessage{}); err != nil {
				return err
			}
			return errors.Join(guestW.Close(), guestR.Close())
		}()
	}()
	s, err := session.Open(t.Context(), r, w, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got [2]*session.Process
	for i := range got {
		if got[i], err = s.Start(shell("true"), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-faked; err != nil {
		t.Error(err)
	}
	if _, err := wait(t, got[0]); !errors.Is(err, session.ErrGuestGone) || errors.Is(err, session.ErrAgain) {
		t.Errorf("what was read: %v", err)
	}
	if _, err := wait(t, got[1]); !errors.Is(err, session.ErrAgain) {
		t.Errorf("what was not: %v", err)
	}
	if _, err := s.Start(shell("true"), nil, nil); !errors.Is(err, session.ErrAgain) {
		t.Errorf("what comes later: %v", err)
	}
}
