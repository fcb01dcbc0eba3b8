package guest

import "berth/internal/guest/wire"

// file serves a request for files on its stream: s.command(stream) has the
// channels, s.sessionDir(m.Session) is what relative paths begin at. It sends
// the exit and ends the channels.
func (s *server) file(stream uint32, m wire.StartMessage) {
	r := wire.FileResult{Kind: wire.FileInvalid, Error: "not built yet", Path: m.File.Path}
	_ = s.out.Message(wire.Exit, stream, wire.ExitMessage{File: &r})
	c := s.command(stream)
	_, _ = c.stdout.Close(), c.stderr.Close()
}
