package ssh

import (
	"bytes"
	"context"
	"io"
	"os"

	"berth/internal/sys/run"
	"berth/jobs"
)

// Connected tells whether a connection to the host stands that the next call
// rides on. It asks only ssh on this machine.
func (h *Host) Connected(ctx context.Context) bool {
	if makePrivate(h.control) != nil {
		return false
	}
	argv := append(h.args(true), "-O", "check", "--", h.spec.Host)
	_, err := run.Output(ctx, h.b.On, jobs.Cmd{Argv: argv, Env: h.b.Env})
	return err == nil
}

// Connect makes sure, where a person can be asked, that the connection to an
// environment's host stands: everything after it rides on that and asks the user nothing.
// Without a terminal there is nothing to be done beforehand.
func (b Backend) Connect(ctx context.Context, s *jobs.EnvSpec, terminal bool) error {
	if !terminal || s.SSH == nil {
		return nil
	}
	h, err := b.Host(*s.SSH)
	if err != nil {
		return err
	}
	return h.Connect(ctx, true)
}

// Connect makes sure that the connection stands. With terminal, ssh may ask
// the person there: for a password, a code, the passphrase of a key, and
// whether an unknown host's fingerprint is right. Without it ssh asks nothing,
// and what would have needed an answer is an error of [jobs.KindAuth] or
// [jobs.KindConfig].
func (h *Host) Connect(ctx context.Context, terminal bool) error {
	if h.Connected(ctx) {
		return nil
	}
	if !terminal || run.IsUnattended(ctx) {
		p, err := h.Start(ctx, jobs.Cmd{Argv: []string{"true"}})
		if err != nil {
			return err
		}
		_, err = p.Wait()
		return err
	}
	if err := makePrivate(h.control); err != nil {
		return err
	}
	// The connection goes on in the background once the person is let in: that
	// is what ControlPersist does with a command's end.
	var said, out bytes.Buffer
	const word = "berth-connected"
	exit, err := run.OnTerminal(ctx, jobs.Cmd{
		Argv: h.call(false, viaSh(`echo "$1"`, word)), Env: h.b.Env,
		Stdout: &out, Stderr: io.MultiWriter(os.Stderr, &said),
	})
	switch {
	case err != nil:
		return h.startFailed(err)
	case exit.Code == failed || exit.Signal != 0:
		return h.explain(ctx, said.String())
	case !bytes.Contains(out.Bytes(), []byte(word)):
		return h.notOurs(exit, said.String()+" "+out.String())
	}
	return nil
}
