package broker

import "bytes"

// scanner looks for keys in what goes by in pieces. It holds back no more than the
// beginning of one, so that what a stream says is passed on at once.
type scanner struct {
	keys [][]byte
	held []byte
}

// next returns what may be passed on of what was held and what has come. It is false
// when a key is in it.
func (s *scanner) next(p []byte) ([]byte, bool) {
	b := p
	if len(s.held) > 0 {
		b = append(s.held, p...)
	}
	hold := 0
	for _, key := range s.keys {
		if bytes.Contains(b, key) {
			return nil, false
		}
		for n := min(len(key)-1, len(b)); n > hold; n-- {
			if bytes.HasPrefix(key, b[len(b)-n:]) {
				hold = n
			}
		}
	}
	out := b[:len(b)-hold]
	s.held = append([]byte(nil), b[len(b)-hold:]...)
	return out, true
}

// rest is what was held back, when nothing more comes.
func (s *scanner) rest() []byte { return s.held }

// has reports whether a key is in a text.
func (s *scanner) has(text string) bool {
	for _, key := range s.keys {
		if bytes.Contains([]byte(text), key) {
			return true
		}
	}
	return false
}
