//go:build faults

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"berth/jobs"
)

// wish is a job of a schedule: what it does, and how it may end when no one
// wishes otherwise.
type wish struct {
	kind, flags, command string
	want                 jobs.State
}

// wishes are the kinds of jobs. All bear being run twice.
var wishes = []wish{
	{"short", "", "echo ready; sleep %d", jobs.StateCompleted},
	{"fails", "", "echo ready; sleep %d; exit 3", jobs.StateFailed},
	{"overlay, copied", "--overlay copied --overlay-wait 10m --overlay-snapshot always", "echo ready; echo %[1]d >>/lines; sleep %[1]d", jobs.StateCompleted},
	{"overlay, in place", "--overlay placed --overlay-wait 10m --overlay-snapshot never", "echo ready; echo %[1]d >>/lines; sleep %[1]d", jobs.StateCompleted},
	{"workspace", "--workspace " + files + "/repo", "echo ready; echo %[1]d >>file; sleep %[1]d", jobs.StateCompleted},
	{"descendants", "", "echo ready; (setsid sh -c 'trap \"\" TERM; sleep 330' &); sleep %d", jobs.StateCompleted},
	// One whose client was not told its id is cancelled by no one, and may begin when
	// all is over: it ends within [patience].
	{"cancelled", "", "echo ready; sleep 15%d", jobs.StateCancelled},
}

// crowd is the clients of a schedule.
type crowd struct {
	mu      sync.Mutex
	wishes  map[string]wish // by the short id of the job
	unclear atomic.Int64    // submissions that were not acknowledged
	refused atomic.Int64    // of these, those that berth has said no to
	forgot  []memory        // of slurmctld's, when it was killed
}

// client submits jobs until the context ends, and looks after some of them.
func (c *crowd) client(ctx context.Context, seed, n uint64) {
	r := rand.New(rand.NewPCG(seed, 100+n))
	short := regexp.MustCompile(`^[0-9a-f]{8}$`)
	for ctx.Err() == nil {
		w := wishes[r.IntN(len(wishes))]
		long, next, after := 1+r.IntN(9), r.IntN(3), time.Duration(r.IntN(4000))*time.Millisecond
		a := onFor(4*time.Minute, "login", "alice", submitLine("--retry on --time 10m --name chaos "+w.flags, fmt.Sprintf(w.command, long)))
		if short.MatchString(a.out) {
			acked.Store(a.out, true)
			c.mu.Lock()
			c.wishes[a.out] = w
			c.mu.Unlock()
			switch {
			case w.want == jobs.StateCancelled:
				pause(ctx, after)
				// A wish that could not be recorded is wished again.
				for i := 0; i < 20 && onFor(2*time.Minute, "login", "alice", "berth cancel "+a.out).code != 0; i++ {
					time.Sleep(3 * time.Second)
				}
			case next == 0:
				onFor(2*time.Minute, "login", "alice", "berth wait --timeout 60s "+a.out)
			case next == 1:
				onFor(time.Minute, "login", "alice", "berth status "+a.out)
			}
		} else {
			c.unclear.Add(1)
			if a.code > 0 && a.code < 128 {
				c.refused.Add(1)
			}
		}
		pause(ctx, 2*time.Second+after)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
