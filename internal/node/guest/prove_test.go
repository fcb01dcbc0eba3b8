//go:build linux

package guest

import (
	"crypto/rand"
	"net"
	"slices"
	"testing"

	"berth/internal/link/wire"
)

// What listens on this machine is reached from here, and what does not is not: it is
// the network namespace of a place that keeps them apart.
func TestProve(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	p := &wire.Proof{Port: tcp.Addr().(*net.TCPAddr).Port, Abstract: "berth-test-" + rand.Text()}
	abstract, err := net.Listen("unix", "@"+p.Abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = abstract.Close() }()
	has := func(want bool) {
		t.Helper()
		got := prove(p)
		for _, what := range []string{"the loopback of its machine", "an abstract socket of its machine"} {
			if slices.Contains(got, what) != want {
				t.Errorf("%s: in %q, want %v", what, got, want)
			}
		}
	}
	has(true)
	_, _ = tcp.Close(), abstract.Close()
	has(false)
}
