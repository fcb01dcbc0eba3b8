package jobs

import (
	"context"
	"errors"
	"io"
	"time"
)

// Once is a command for an environment without streams: it runs by itself.
type Once struct {
	Argv           []string
	Stdin          io.Reader // nil is empty
	Stdout, Stderr io.Writer
	Limit          time.Duration // ends the command; 0 is never. An opening does not count
	Progress       func(string)  // nil reports no progress
	// Hold keeps others from opening the environment until release is called.
	Hold func() (release func(), err error)
}

// ErrOnceTimeout says that the command was ended because of [Once].Limit.
var ErrOnceTimeout = errors.New("timed out")

// Oncer is a backend some of whose environments have no streams, see
// [ExternalSpec].OneShot.
type Oncer interface {
	// Exec runs a command, and opens the environment first where that is needed;
	// the notes are of that. When ctx ends, so does the command. An error is that
	// the command did not run, or that its end is not known.
	Exec(ctx context.Context, s *EnvSpec, o Once) (Exit, []string, error)
	// OpenOnce finds or makes the environment's place.
	OpenOnce(ctx context.Context, s *EnvSpec, o Once) ([]string, error)
}
