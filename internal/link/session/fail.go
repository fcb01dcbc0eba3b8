package session

import "fmt"

// Fail ends the conversation for a reason that the caller has found: what
// waits for an answer is told that as an [ErrGuestGone].
func (s *Session) Fail(why error) { s.shut(fmt.Errorf("%w: %w", ErrGuestGone, why)) }
