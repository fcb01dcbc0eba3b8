//go:build linux

package network

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Fifty containers at once, each with a judge of its own, that read for the same second.
func TestFifty(t *testing.T) {
	needNode(t)
	at := mark(t)
	words := []string{"env", "rm", "--force"}
	for n := range 50 {
		words = append(words, fmt.Sprintf("many%d", n))
	}
	remove := berth(t, words...)
	defer func() {
		if got := run(t, remove); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			words := []string{"exec", "--backend", "bwrap", "--env", fmt.Sprintf("many%d", n), "--network", "allow", "--allow", "allowed.test", "--bind",
				filepath.Join(top, "bin") + ":/opt/bin", "--",
				"sh", "-c", "/opt/bin/probe -get 'http://allowed.test/drip?n=10' && ! /opt/bin/probe -get http://other.test/ 2>/dev/null"}
			if got := run(t, berth(t, words...)); got.code != 0 || !strings.Contains(got.out, "line 9\n") {
				t.Errorf("%d: %+v", n, got)
			}
		})
	}
	all.Wait()
	onlyAllowed(t, at)
}
