package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// lookAgain is how often a keeper that came second looks what became of the
// first.
const lookAgain = 20 * time.Millisecond

// take takes the lease. stood is that another keeper has the environment open.
func (k *keeper) take(ctx context.Context, out *reporter) (stood bool, err error) {
	self := lease.Self()
	me := self.Owner(k.dir)
	me.Environment = k.spec.Name
	gone := func(o lease.Owner) bool {
		who := o.Process()
		if who.Near(self) {
			return who.Gone(self)
		}
		if who.Gone(self) { // of an earlier boot
			return true
		}
		out.progress(fmt.Sprintf("process %d on %s had this environment open; waiting whether it still lives", o.PID, o.Host))
		return lease.Gone(ctx, o, self, lease.Patience{Look: k.times.Beat / 10, Dead: k.times.Silent, Silent: k.times.Silent}, func(string) bool {
			held, err := lease.Holder(k.dir)
			return err == nil && held == nil
		})
	}
	told := false
	for {
		k.lease, err = lease.Acquire(k.dir, me, gone)
		var held *lease.HeldError
		if !errors.As(err, &held) {
			if err != nil {
				return false, &jobs.Error{Kind: jobs.KindOf(err), Msg: "take the environment " + k.spec.Name, Err: err, Hint: jobs.HintOf(err)}
			}
			return false, nil
		}
		who := held.Owner.Process()
		if !who.Near(self) {
			return false, &jobs.Error{Kind: jobs.KindAgain,
				Msg: fmt.Sprintf("environment %s is open on %s (process %d) since %s",
					k.spec.Name, who.Host, who.PID, held.Owner.Time.Format(time.RFC3339)),
				Hint: "use it there, or stop it there: berth env stop " + k.spec.Name}
		}
		if i, err := Peek(k.dir); err == nil && i != nil && i.Phase == phaseReady && i.Process == who {
			if conn, err := socket.Dial(ctx, i.Socket); err == nil {
				_ = conn.Close()
				out.done(Report{Version: wire.Version, Ready: true, Opened: i.Opened})
				return true, nil
			}
		}
		if !told {
			told = true
			out.progress("another process is opening or ending it; waiting")
		}
		if !out.read() {
			return false, &jobs.Error{Kind: jobs.KindAgain, Msg: "whoever waited for the environment has left"}
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}
