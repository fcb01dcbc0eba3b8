package daytona

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// policy says when a request may be sent again.
type policy int

const (
	// again: the request does the same however often it is sent.
	again policy = iota
	// early: it may run something, so only when it surely has not: it was refused
	// for its rate, or no connection came about.
	early
	// never: whoever sends it looks first what became of it.
	never
)

// attempts are those at a service that does not answer, and hasty those of verbs that
// have less than a minute. One that answers, and wants to be left alone, is asked for
// as long as there is time, see [client.calm].
const (
	attempts = 6
	hasty    = 4
)

// unit is the first wait where the service names none; tests shorten it.
var unit = time.Second

// errMoved is an answer that points elsewhere.
var errMoved = errors.New("a key is sent to no other address than its own")

type (
	policyKey struct{}
	sayKey    struct{}
)

// retry is retryablehttp's CheckRetry: its own would send a command again.
func retry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	p, _ := ctx.Value(policyKey{}).(policy)
	if p == never {
		return false, err
	}
	if err != nil {
		return temporary(err) && (p == again || noConnection(err)), nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return p == again && told(resp) == 0, nil
	}
	return false, nil
}

// later tells that a request was refused unseen, and may be sent again after a while.
func (e *refusal) later(p policy) bool {
	return p != never && e.status == http.StatusTooManyRequests || p == again && e.status == http.StatusServiceUnavailable && e.wait > 0
}

// rest is how long to leave a service alone that has refused something for the nth
// time: as it says, or longer each time, and a little more, so that many who were
// refused at once do not come back at once.
func (e *refusal) rest(n int) time.Duration {
	wait := e.wait
	if wait <= 0 {
		wait = unit << min(n, 5)
	}
	return wait + rand.N(min(wait, 10*time.Second)/2+1)
}

// calm waits until a request that was refused may be sent again, with signs of life.
// Where there is no time for that, the refusal is the error.
func (c *client) calm(ctx context.Context, e *refusal, n int) error {
	wait := e.rest(n)
	if time.Now().Add(wait).After(c.until) {
		return e
	}
	why := "has had too many requests"
	if e.status != http.StatusTooManyRequests {
		why = "asks to be left alone"
	}
	for wait > 0 {
		c.say("Daytona %s; asking again in %v", why, wait.Round(time.Second/10))
		step := min(wait, max(tellAgain(), time.Second))
		if err := c.pause(ctx, step, e.op); err != nil {
			return err
		}
		wait -= step
	}
	return nil
}

// noConnection tells that not a byte was sent.
func noConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// temporary tells that what failed may be another time: not a certificate, not
// a name that does not exist.
func temporary(err error) bool {
	if errors.Is(err, errMoved) {
		return false
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return !dns.IsNotFound
	}
	text := err.Error()
	return !strings.Contains(text, "certificate") && !strings.Contains(text, "unsupported protocol")
}

// told is how long the service wants to be left alone: the longest that any of
// its headers says, which are called by what was exceeded.
func told(resp *http.Response) (most time.Duration) {
	if resp == nil {
		return 0
	}
	for name, values := range resp.Header {
		if !strings.HasPrefix(name, "Retry-After") {
			continue
		}
		for _, v := range values {
			if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e9 {
				most = max(most, time.Duration(s*float64(time.Second)))
			} else if at, err := http.ParseTime(v); err == nil {
				most = max(most, time.Until(at))
			}
		}
	}
	return most
}

// backoff is retryablehttp's Backoff, and says what it waits for.
func backoff(_, _ time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := unit << min(attempt, 3)
	wait += rand.N(wait/2 + 1)
	if resp != nil && resp.Request != nil {
		if say, ok := resp.Request.Context().Value(sayKey{}).(func(string, ...any)); ok && say != nil {
			say("Daytona does not answer just now; asking again in %v", wait.Round(time.Second/10))
		}
	}
	return wait
}

// httpClient sends as the policies say. Nothing bounds a request but its context.
func httpClient(base http.RoundTripper, tries int) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: base, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it points to %s instead: %w", req.URL.Host, errMoved)
		}},
		RetryMax: tries - 1, CheckRetry: retry, Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}
