package session

// Exited tells whether the end is known, though its output may not be out.
func Exited(p *Process) bool { return p.ended() }
