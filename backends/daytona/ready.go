package daytona

import (
	"context"
	"errors"
	"net/http"
	"time"

	"berth/backends/external/protocol"
)

// Times between looks at a sandbox that is on its way. Fifty that are opened at once
// ask 25 times a second in the end, an eighth of the least allowance.
const lastLook = 2 * time.Second

// tellAgain is how often people are told that something is still on its way: a sign
// of life.
func tellAgain() time.Duration { return 20 * unit }

// alive tells it until stop is called.
func (c *client) alive(what string) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-time.After(tellAgain()):
				c.say("still %s", what)
			}
		}
	}()
	return func() { close(over); <-done }
}

// ready waits until a sandbox runs, and starts it if it does not. woken is that
// it had stopped. The error of one that cannot be used any more is *lostError.
func (c *client) ready(ctx context.Context, b *sandbox) (now *sandbox, woken bool, err error) {
	var told string
	var at, asked time.Time
	repaired := false
	for look := unit / 5; ; look = min(look*13/10, lastLook) {
		switch b.State {
		case "started":
			return b, woken, nil
		case "stopped", "archived", "paused":
			if b.gone() {
				return nil, woken, &lostError{b}
			}
			woken = true
			if told != "starting" {
				c.say("starting the sandbox, which was %s", b.State)
				told, at = "starting", time.Now()
			}
			if time.Since(asked) > 3*unit {
				asked = time.Now()
				if err := c.start(ctx, b); err != nil {
					return nil, woken, err
				}
			}
		case "error":
			if !b.Repairable || repaired {
				return nil, woken, &lostError{b}
			}
			repaired, woken = true, true
			c.say("repairing the sandbox: %s", b.Why)
			if err := c.change(ctx, b, "recover"); err != nil && !isStatus(err, http.StatusConflict) {
				return nil, woken, err
			}
		case "build_failed", "destroyed", "destroying":
			return nil, woken, &lostError{b}
		default:
			if words := stateWords(b.State); told != words || time.Since(at) > tellAgain() {
				told, at = words, time.Now()
				c.say("the sandbox is %s", words)
			}
		}
		if err := c.pause(ctx, look, "start the sandbox "+b.Name); err != nil {
			return nil, woken, err
		}
		next, err := c.get(ctx, b.ID)
		if err != nil {
			return nil, woken, err
		}
		if next == nil {
			return nil, woken, &lostError{&sandbox{ID: b.ID, Name: b.Name, State: "destroyed"}}
		}
		b = next
	}
}

// start asks for a start. That something else is being done with it, or that it
// does not stand as it did, is seen at the next look.
func (c *client) start(ctx context.Context, b *sandbox) error {
	err := c.change(ctx, b, "start")
	var p *protocol.Error
	if errors.As(explain(err), &p) && p.Kind == protocol.Conflict {
		return nil
	}
	return err
}

func stateWords(state string) string {
	switch state {
	case "pending_build", "building_snapshot":
		return "waiting for its image to be built"
	case "pulling_snapshot":
		return "waiting for its image"
	case "restoring":
		return "being brought back from the archive; that takes minutes"
	case "archiving":
		return "still on its way to the archive, and is brought back after that"
	case "":
		return "being made"
	}
	return state
}

// lostError is a sandbox that will not run any more.
type lostError struct{ b *sandbox }

func (e *lostError) Error() string {
	why := e.b.Why
	if why == "" {
		why = "Daytona does not say why"
	}
	switch e.b.State {
	case "build_failed":
		return "its image could not be built: " + why
	case "error":
		return "it is broken: " + why
	}
	return "it was deleted, or had come to the end of its life"
}

// told is the error for people.
func (e *lostError) told() *protocol.Error {
	p := &protocol.Error{Kind: protocol.Gone, Message: "the sandbox " + e.b.Name + " cannot be used: " + e.Error(),
		Hint: "its files may be brought back in Daytona's dashboard; to start from the beginning: berth env rm"}
	if e.b.State == "build_failed" {
		p.Kind, p.Hint = protocol.NotFound, "does the image exist, and can Daytona reach its registry?"
	}
	return p
}

// halt stops a sandbox and waits until it has. Not there, or stopped, is done.
func (c *client) halt(ctx context.Context, b *sandbox) (now *sandbox, err error) {
	asked := time.Time{}
	for look := unit / 5; ; look = min(look*13/10, lastLook) {
		switch {
		case b == nil || b.gone() || b.State == "stopped" || b.State == "archived" ||
			b.State == "archiving" || b.State == "build_failed" || b.State == "error":
			return b, nil
		case b.State == "started" && time.Since(asked) > 10*time.Second:
			err := c.change(ctx, b, "stop")
			if err != nil && !isStatus(err, http.StatusConflict) && !isStatus(err, http.StatusBadRequest) {
				return b, err
			}
			asked = time.Now()
		}
		if err := c.pause(ctx, look, "stop the sandbox "+b.Name); err != nil {
			return b, err
		}
		next, err := c.get(ctx, b.ID)
		if err != nil {
			return b, err
		}
		b = next
	}
}

// store archives a stopped sandbox. What cannot be is left to the timer.
func (c *client) store(ctx context.Context, b *sandbox) {
	if err := c.change(ctx, b, "archive"); err != nil && !isStatus(err, http.StatusConflict) {
		c.say("%v; Daytona does it by itself in a minute, if it can", err)
	}
}

// destroy deletes a sandbox and waits until it costs nothing.
func (c *client) destroy(ctx context.Context, b *sandbox) error {
	for look := unit / 5; b != nil && b.State != "destroyed"; look = min(look*13/10, lastLook) {
		if !b.gone() {
			if err := c.remove(ctx, b); err != nil && !isStatus(err, http.StatusConflict) {
				return err
			}
		}
		if err := c.pause(ctx, look, "delete the sandbox "+b.Name); err != nil {
			return err
		}
		next, err := c.get(ctx, b.ID)
		if err != nil {
			return err
		}
		b = next
	}
	return nil
}
