package modal

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/backends/external/protocol"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxBackoff bounds one wait of which Modal has not said how long it is to be.
const maxBackoff = 30 * time.Second

// leastWait is what every wait is of at least. Tests have a shorter one.
var leastWait = createGap

// patience waits out that Modal refuses calls because there are too many. Such a
// refusal says that nothing was done, so there is no bound of tries: only the time
// that the request has, and MODAL_MAX_THROTTLE_WAIT. Whoever waits says so, again
// and again, for a silent program is taken to hang.
type patience struct {
	say   func(format string, args ...any)
	began time.Time // when it was refused first
	tries int
}

// wait waits until a call that failed with err may be made again; an error is that
// it must not be, because it failed for another reason or there is no time left.
func (p *patience) wait(ctx context.Context, err error) error {
	told, is := refused(err)
	if !is || ctx.Err() != nil {
		return err
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	d := p.delay(told)
	until := time.Now().Add(d)
	if most, bounded := maxThrottleWait(); bounded && until.Sub(p.began) > most {
		return err
	}
	if end, ok := ctx.Deadline(); ok && until.After(end) {
		return err
	}
	p.tries++
	p.say("waiting %v for Modal's rate limit: %s", max(d.Round(time.Second), time.Second), text(err))
	defer alive(p.say, "waiting for Modal's rate limit")()
	return pause(ctx, d)
}

// delay is how long the next wait is: what Modal has said, else the longer the more
// often it has refused, and in no case less than the pace that it allows. All of it
// is spread, so that many who were refused together do not come back together.
func (p *patience) delay(told time.Duration) time.Duration {
	spread := min(2*leastWait<<min(p.tries, 10), maxBackoff)
	if told > 0 {
		spread = told/4 + leastWait
	}
	return max(told, leastWait) + rand.N(spread)
}

// refused tells whether an error says that there were too many calls, and after how
// long to come again; 0 is that it does not say.
func refused(err error) (time.Duration, bool) {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return 0, false
	}
	for _, d := range st.Details() {
		if policy, is := d.(*pb.RPCRetryPolicy); is {
			// More than a request has is as good as any.
			s := min(max(float64(policy.GetRetryAfterSecs()), 0), protocol.OpenTime.Seconds())
			return max(time.Duration(s*float64(time.Second)), leastWait), true
		}
	}
	if st.Code() != codes.ResourceExhausted {
		return 0, false
	}
	said := strings.ToLower(st.Message())
	for _, word := range []string{"rate limit", "rate-limit", "ratelimit", "too many requests", "throttl"} {
		if strings.Contains(said, word) {
			return 0, true
		}
	}
	return 0, false // a quota, or no room: waiting does not help
}

// maxThrottleWait is what the user allows all waits for one call to take, as the
// SDK's own variable has it.
func maxThrottleWait() (time.Duration, bool) {
	s, err := strconv.ParseInt(os.Getenv("MODAL_MAX_THROTTLE_WAIT"), 10, 32)
	return time.Duration(s) * time.Second, err == nil && s >= 0
}

// patiently makes a call that is made again as long as it is refused.
func patiently[T any](ctx context.Context, say func(format string, args ...any), call func() (T, error)) (T, error) {
	for p := (patience{say: say}); ; {
		v, err := call()
		if err == nil || p.wait(ctx, err) != nil {
			return v, err
		}
	}
}
