//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestAfter has jobs wait for others, and no one looks: a parent that is tried
// again does not break the chain, and what can never begin ends with that
// reason, and so do those that wait for it. They were submitted by several at
// once from two hosts, under one key each.
func TestAfter(t *testing.T) {
	each(t, []site{standard, newer}, after)
}

func after(t *testing.T, s site) {
	d := s.dir(t)
	heavy := s.submit(t, "--name heavy --retry on --memory 200MiB --time 10m --bind "+d+":/d", `until [ -e /d/go ]; do sleep 0.2; done; python3 -c 'b = bytearray(250 << 20); import time; time.sleep(3)'`)
	child := s.once(t, d, "--name child --after "+heavy, "echo child of "+heavy)
	other := s.submit(t, "--name other --retry off --after notok:"+heavy, "echo never")
	fails := s.submit(t, "--name fails --after any:"+heavy, "exit 3")
	never := s.submit(t, "--name never --after "+fails, "echo never")
	last := s.submit(t, "--name last --after ok:"+never, "echo never")
	mends := s.submit(t, "--name mends --after "+heavy+",notok:"+fails, "echo mended")
	if st := s.ok(t, "berth status "+mends); !strings.Contains(st, "waits for\t"+heavy+" (ok), "+fails+" (notok)") {
		t.Errorf("status of %s:\n%s", mends, st)
	}
	s.ok(t, "touch "+d+"/go")

	// The ledger's own files tell, without a client that would act.
	for _, id := range []string{child, other, never, last, mends} {
		accepted := fmt.Sprintf("grep -l '\"accept\"' ~/.local/state/berth/jobs/*/*%s/attempts/*/decision.json 2>/dev/null || true", id)
		waitFor(t, patience, func() bool { return s.ok(t, accepted) != "" })
	}
	if x := s.tried(t, heavy); len(x.Attempts) != 2 || x.State != "completed" {
		t.Errorf("the parent: %+v", x)
	}
	for id, out := range map[string]string{child: "child of " + heavy, mends: "mended"} {
		s.wait(t, id, 0)
		if got := s.ok(t, "cat ~/.local/state/berth/jobs/*/*"+id+"/attempts/*/stdout"); got != out {
			t.Errorf("all attempts of %s wrote %q", id, got)
		}
		x := s.tried(t, id)
		for _, a := range x.Attempts[:len(x.Attempts)-1] {
			if a.Decision == nil || a.Decision.Class != "waiting" {
				t.Errorf("%s: %+v", id, a)
			}
		}
	}
	for id, why := range map[string]string{other: heavy + " (notok), which it waits for, has ended as completed", never: fails + " (ok), which it waits for, has ended as failed", last: never + " (ok), which it waits for, has ended as error"} {
		if st := s.wait(t, id, 1); st.State != "error" || !strings.Contains(st.Reason, why) || st.Hint == "" {
			t.Errorf("%+v", st)
		}
	}
}

// once submits the same from eight processes on two hosts at the same time,
// under one idempotency key, and returns the one job's id.
func (s site) once(t *testing.T, dir, flags, command string) string {
	t.Helper()
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for _, host := range []string{"login", "c1"} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a := s.on(t, host, "alice", "bash", "-c", fmt.Sprintf("export PATH=/mnt/share/bin:$PATH; for i in 1 2 3 4; do berth submit --idempotency-key %s %s --image %s %s -- %s & done; wait", dir, s.flags(), s.image, flags, quote(command)))
			mu.Lock()
			defer mu.Unlock()
			lines := strings.Fields(a.out)
			if len(lines) != 4 {
				t.Errorf("on %s: %q %s", host, a.out, a.err)
			}
			for _, id := range lines {
				ids[id] = true
			}
		}()
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Fatalf("one key, and the jobs %v", ids)
	}
	for id := range ids {
		return id
	}
	return ""
}
