package modal

import (
	"strings"
	"testing"
)

// TestScrap: what talks without end in a sandbox fills no memory here.
func TestScrap(t *testing.T) {
	part := []byte(strings.Repeat("y\n", 1000))
	for _, whole := range []bool{true, false} {
		s, refused := scrap{whole: whole}, false
		for range 100 {
			n, err := s.Write(part)
			refused = refused || err != nil
			if err == nil && n != len(part) {
				t.Fatalf("%d of %d bytes without an error", n, len(part))
			}
		}
		if refused != whole || len(s.String()) != mostScrap {
			t.Errorf("whole=%v: refused=%v, %d bytes kept", whole, refused, len(s.String()))
		}
	}
}
