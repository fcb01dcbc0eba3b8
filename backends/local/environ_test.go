package local_test

import (
	"slices"
	"testing"

	"berth/backends/local"
)

func TestEnviron(t *testing.T) {
	got := local.Environ(func(name string) string {
		return map[string]string{"PATH": "/bin", "HOME": "/home/a", "TMPDIR": "/t", "LC_ALL": "C", "SSH_AUTH_SOCK": "/s", "AWS_SECRET_ACCESS_KEY": "x", "BERTH_HOME": "/b", "LD_PRELOAD": "/l"}[name]
	})
	if want := []string{"PATH=/bin", "HOME=/home/a", "LC_ALL=C", "TMPDIR=/t"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
