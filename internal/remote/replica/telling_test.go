package replica

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// named is a host of which only the name is asked.
type named struct{ Host }

func (named) String() string { return "uni" }

// A copy to a site that takes long tells how far it is, each five seconds.
func TestTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := &Site{c: Config{Host: named{}, Progress: func(text string) { told = append(told, text) }}}
		r := &watched{ctx: t.Context(), r: strings.NewReader(strings.Repeat("x", 3<<20)), progress: s.telling("the repository", 3<<20)}
		for range 6 {
			if _, err := io.CopyN(io.Discard, r, 1<<19); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tellEvery / 2)
		}
		if want := []string{"copying the repository to uni: 1MiB of 3MiB", "copying the repository to uni: 2MiB of 3MiB"}; !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	})
}
