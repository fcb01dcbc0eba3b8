package jobs

import (
	"slices"
	"testing"
)

func TestProfileGPUs(t *testing.T) {
	for _, c := range [][3]string{
		{"", "2", "2"}, {"a100", "2", "a100:2"}, {"a100", "h100:1", "h100:1"}, {"a100", "1,h100:2", "a100:1,h100:2"}, {"a100", "", ""},
	} {
		if got := (Profile{GPUType: c[0]}).GPUs(c[1]); got != c[2] {
			t.Errorf("%q of type %q: %q, want %q", c[1], c[0], got, c[2])
		}
	}
}

func TestProxyEnviron(t *testing.T) {
	if got := (Proxy{}).Environ(); len(got) != 0 {
		t.Errorf("of nothing came %q", got)
	}
	want := []string{"https_proxy=http://p:1", "HTTPS_PROXY=http://p:1", "no_proxy=.x", "NO_PROXY=.x"}
	if got := (Proxy{HTTPS: "http://p:1", No: ".x"}).Environ(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
