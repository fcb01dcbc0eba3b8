package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/link/wire"

	"golang.org/x/sys/unix"
)

// greet takes the client's hello, prepares the place and answers: the one write by
// the reading goroutine, since nothing else is under way yet.
func (s *server) greet() error {
	return wire.Greet(s.in, s.out, func(hello wire.ClientHello, err error) (wire.GuestHello, error) {
		answer := wire.GuestHello{Version: wire.Version, MaxStart: wire.MaxStart, PID: os.Getpid(), UID: os.Getuid(), Kernel: kernel()}
		switch {
		case hello.Version != wire.Version:
			err = fmt.Errorf("the client speaks version %d of the protocol, this guest %d", hello.Version, wire.Version)
		case err != nil:
			err = fmt.Errorf("the client's hello: %w", err)
		default:
			err = s.prepare(hello, &answer)
		}
		if err != nil {
			answer.Error, answer.NotWritable = err.Error(), errors.Is(err, errNotWritable)
		}
		return answer, err
	})
}

// prepare does what the hello asks for and fills in the answer.
func (s *server) prepare(hello wire.ClientHello, answer *wire.GuestHello) (err error) {
	s.grace.Store(int64(hello.LeaveGrace))
	s.ownNS.Store(!s.joined && hello.OwnPIDNamespace && ownPIDNamespace(hello.PIDNamespace))
	if hello.Look {
		seen := look()
		if hello.Proof != nil {
			seen.Tried, seen.Reached = true, prove(hello.Proof)
		}
		answer.Seen = &seen
	}
	if hello.Confine {
		if at := writableCgroups(mounts()); answer.Seen != nil && at != "" {
			answer.Seen.WritableCgroups = at
			return errors.New("cgroups can be written at " + at)
		}
		conf, left, err := s.confine(hello.Network)
		if err != nil {
			return err
		}
		s.conf = conf
		if answer.Seen != nil {
			answer.Seen.Filtered, answer.Seen.CommandCapabilities, answer.Seen.NoNewPrivs =
				left.filtered, fmt.Sprintf("%016x", left.capabilities), left.noNewPrivs
		}
	}
	if hello.WritableRoot {
		if err := proveWritable("/"); err != nil {
			return err
		}
	}
	env := os.Environ()
	if len(hello.Env) > 0 {
		env = wire.Strings(hello.Env)
	}
	s.homes, s.user = wire.Strings(hello.Home), string(hello.User)
	if s.place, err = newPlace(env, s.homes, s.user); err != nil {
		return err
	}
	s.place.login, s.place.dir = hello.Login, string(hello.Dir)
	if d := s.place.dir; d != "" && (!filepath.IsAbs(d) || strings.ContainsRune(d, 0)) {
		return fmt.Errorf("%q, where sessions begin, is not an absolute path", d)
	}
	s.watch.set(hello.PingTimeout, time.Now())
	if w := hello.Network; w != nil && !w.Visitor {
		answer.Network, err = s.net.prepare(w)
		if err != nil {
			return fmt.Errorf("prepare the network of commands: %w", err)
		}
		s.net.complete(&s.place)
	}
	if hello.Asks {
		if err := s.listenAsks(hello.Stubs); err != nil {
			return fmt.Errorf("prepare the program berth of commands: %w", err)
		}
		answer.Asks, answer.AskDir = true, wire.Text(s.asks.jobs())
		s.asks.complete(&s.place)
	}
	answer.OwnPIDNamespace = s.ownNS.Load()
	answer.Home, answer.Path = wire.Text(s.place.get("HOME")), wire.Text(s.place.get("PATH"))
	answer.Shell = s.place.shell
	if hello.TellEnv {
		answer.Env = wire.Texts(s.place.env)
	}
	return nil
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
