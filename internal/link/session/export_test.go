package session

import "berth/internal/link/wire"

// Exited tells whether the end is known, though its output may not be out.
func Exited(p *Process) bool { return p.ended() }

// Send sends any message.
func Send(s *Session, t wire.Type, stream uint32, v any) error { return s.out.Message(t, stream, v) }

// ClampExit makes an end one that can be.
func ClampExit(m wire.ExitMessage) wire.ExitMessage {
	clampExit(&m)
	return m
}
