package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"berth/backends/external/protocol"
)

// cleanupTime is what is left of a process that was told to end. Tests have more.
var cleanupTime = 4 * time.Second

// make makes a sandbox that was not there when it was looked for. Names are
// unique, so it is never made twice. ours is that this process has made it.
func (c *client) make(ctx context.Context, w *create, tags map[string]string) (b *sandbox, ours bool, err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			c.dropCreated(w.Name, tags)
		}
	}()
	for try, refusals := 0, 0; try < attempts; try++ {
		b, err = c.post(ctx, w)
		if err == nil {
			return b, true, nil
		}
		var no *refusal
		taken, busy := isStatus(err, http.StatusConflict), isStatus(err, http.StatusTooManyRequests)
		if errors.As(err, &no) && !taken && !busy && no.status < 500 && no.status > 299 {
			return nil, false, err
		}
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		switch {
		case busy:
			if err := c.calm(ctx, no, refusals); err != nil {
				return nil, false, err
			}
			refusals, try = refusals+1, try-1 // it was not tried
		case !taken:
			wait := unit << min(try, 3)
			c.say("Daytona did not make the sandbox yet; looking again in %v", wait.Round(time.Second/10))
			if err := c.pause(ctx, wait, "make the sandbox "+w.Name); err != nil {
				return nil, false, err
			}
		}
		standing, look := c.get(ctx, w.Name)
		switch {
		case look != nil:
			return nil, false, &protocol.Error{Kind: protocol.Unclear,
				Message: fmt.Sprintf("%v; whether it was made cannot be found out: %v", err, look),
				Hint:    "try again: it is found by its name; else it ends by itself"}
		case standing == nil:
			continue
		case standing.gone():
			c.say("the sandbox that was called %s is still being deleted", w.Name)
			if err := c.pause(ctx, unit<<min(try, 3), "make the sandbox "+w.Name); err != nil {
				return nil, false, err
			}
			continue
		case !standing.has(tags):
			return nil, false, foreign(standing)
		}
		return standing, !taken, nil
	}
	return nil, false, err
}

// pause waits. Where there is no time left for what is waited for, as people call it,
// that is the error.
func (c *client) pause(ctx context.Context, d time.Duration, what string) error {
	if time.Now().Add(d).After(c.until) {
		return &protocol.Error{Kind: protocol.Unreachable, Message: what + ": Daytona takes too long over it",
			Hint: "look at it in Daytona's dashboard, and try again"}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// dropCreated deletes what an interrupted create may have made. It was not there
// before, so there is nothing in it.
func (c *client) dropCreated(name string, tags map[string]string) {
	ctx, stop := context.WithTimeout(context.Background(), cleanupTime)
	defer stop()
	if b, err := c.get(ctx, name); err == nil && b != nil && !b.gone() && b.has(tags) {
		_ = c.remove(ctx, b)
	}
}

func foreign(b *sandbox) error {
	return &protocol.Error{Kind: protocol.Conflict,
		Message: fmt.Sprintf("the name %s is taken by a sandbox that is not berth's, or another environment's", b.Name),
		Hint:    "delete or rename it in Daytona's dashboard; berth does not touch it"}
}
