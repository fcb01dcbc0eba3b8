package session

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/internal/link/wire"
)

// Environment has the guest set the environment of commands by the scripts of an
// image, which a shell evaluates inside, with what a command may do. It is called
// before the first command is started, and before anybody else has the session.
// The error is the scripts', or that the guest is gone.
func (s *Session) Environment(ctx context.Context, scripts []string) error {
	if err := s.send(wire.Environ, 0, wire.EnvironMessage{Scripts: wire.Texts(scripts)}); err != nil {
		return err
	}
	select {
	case m := <-s.environ:
		if m.Error != "" {
			return errors.New(text(m.Error))
		}
		env := wire.Strings(m.Env)
		if s.guest.Env != nil {
			s.guest.Env = env
		}
		for _, e := range slices.Backward(env) {
			if v, ok := strings.CutPrefix(e, "PATH="); ok {
				s.guest.Path = v
				break
			}
		}
		return nil
	case <-s.gone:
		return s.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
