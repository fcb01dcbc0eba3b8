package guest

// sessionDir is where a session's relative paths begin.
func (s *server) sessionDir(string) string { return s.place.get("HOME") }
