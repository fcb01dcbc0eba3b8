package run

import (
	"fmt"
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   []string
		rest   string
	}{
		{[]string{"a\nb\n"}, []string{"a", "b"}, ""},
		{[]string{"a", "b", "\nc"}, []string{"ab"}, "c"},
		{[]string{"\n\n"}, []string{"", ""}, ""},
		{[]string{"12345678", "90", "x\ny\n"}, []string{"x", "y"}, ""}, // too long before its end
		{[]string{"1234567890\n"}, []string{"1234567890"}, ""},
		{nil, nil, ""},
	} {
		var got []string
		l := Lines{Most: 8, Take: func(line string) { got = append(got, line) }}
		for _, w := range c.writes {
			_, _ = fmt.Fprint(&l, w)
		}
		if !slices.Equal(got, c.want) || l.Rest() != c.rest {
			t.Errorf("%q: %q, %q", c.writes, got, l.Rest())
		}
	}
}
