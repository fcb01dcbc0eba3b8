package mux

import (
	"context"
	"io"

	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// What a holder does with its far command, as one process does it by itself: a test of a
// [Mux] needs no holder.

// overCommand starts a far command and waits until its far side has reached the
// keeper. ctx bounds that alone. The report is what the far side said.
func overCommand(ctx context.Context, on jobs.Starter, cmd jobs.Cmd, o Options) (*Mux, *keeper.Report, error) {
	m, err := begin(ctx, on, cmd, o)
	if err != nil {
		return nil, nil, err
	}
	rep, err := m.await(ctx)
	if err != nil {
		return nil, nil, err
	}
	return m, rep, nil
}

// Dial begins a conversation with the keeper. The stream speaks the protocol of
// a guest, from its beginning; the error is [keeper.ErrNotRunning] when the
// keeper has ended.
func (m *Mux) Dial(ctx context.Context) (io.ReadWriteCloser, *keeper.Report, error) {
	s, a, err := m.ask(ctx, request{Kind: kindKeeper}, nil)
	if err != nil {
		return nil, nil, err
	}
	return s.Conn(), &a.Report, nil
}

// Pipes is [Link.Pipes] of an environment whose directory is dir here.
func (m *Mux) Pipes(dir, here, inside string) session.Pipes {
	return newPipes(dir, here, inside, func(ctx context.Context, req request) (io.ReadWriteCloser, *answer, error) {
		if err := m.shares(ctx, dir); err != nil {
			return nil, nil, err
		}
		s, a, err := m.ask(ctx, req, nil)
		if err != nil {
			return nil, nil, err
		}
		return s.Conn(), a, nil
	})
}
