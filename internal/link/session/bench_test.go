//go:build linux

package session_test

import (
	"testing"

	"berth/internal/link/session"
)

// The state of the session is saved after each command.
func benchmark(b *testing.B, req session.StartRequest) {
	p := open(b, session.Options{PingTimeout: -1})
	p.run(req)
	b.ResetTimer()
	for range b.N {
		proc, err := p.s.Start(req, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		if res, err := proc.Wait(); err != nil || !res.Exit.OK() {
			b.Fatal(res, err)
		}
	}
}

func BenchmarkSessionBuiltin(b *testing.B) { benchmark(b, in("a", "true")) }
func BenchmarkSessionProgram(b *testing.B) { benchmark(b, in("a", "/bin/true")) }
func BenchmarkFork(b *testing.B) {
	req := in("a", "true")
	req.Fork = true
	benchmark(b, req)
}
func BenchmarkPlain(b *testing.B) { benchmark(b, argv("/bin/true")) }
