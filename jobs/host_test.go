package jobs

import (
	"fmt"
	"testing"
)

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{
		"h": "/h/0", "u@h": "u/h/0", "h:22": "/h/22", "u@h.example:2222": "u/h.example/2222", "u@dom@h": "u@dom/h/0",
		"::1": "/::1/0", "[::1]:22": "/::1/22", "u@[fe80::1%eth0]": "u/fe80::1%eth0/0",
		"": "", "@h": "", "u@": "", "h:": "", "h:x": "", "h:0": "", "h:65536": "", "[::1": "", "[::1]22": "", ":22": "",
	} {
		s, err := ParseHost(in)
		got := fmt.Sprintf("%s/%s/%d", s.User, s.Host, s.Port)
		if err != nil {
			got = ""
			if KindOf(err) != KindUsage || HintOf(err) == "" {
				t.Errorf("%q: %v", in, err)
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
