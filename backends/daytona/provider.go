package daytona

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"berth/backends/external/protocol"
	"berth/backends/external/provider"
)

// Provider is the program's side of the backend "daytona".
type Provider struct{}

var _ provider.Provider = Provider{}

// Name is the backend's.
const Name = "daytona"

// Program is the command line of this backend's program, where this process is
// one that calls [Main] for [Verb].
func Program() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, Verb}
}

// Verb is the word by which berth is this backend's program.
const Verb = "backend-daytona"

// Main is `berth backend-daytona`: it serves the request that the arguments name,
// and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return provider.Serve(ctx, Provider{}, args, os.Stdin, os.Stdout, os.Stderr)
}

// open settles who asks.
func open(r *protocol.Request, say provider.Progress) (*client, error) {
	s, err := settle(r.Options, environ)
	if err != nil {
		return nil, err
	}
	return newClient(s, r.Verb, say), nil
}

// Open finds the sandbox or makes it, and has it run with the guest in it.
func (Provider) Open(ctx context.Context, r *protocol.Request, say provider.Progress) (*protocol.Opened, error) {
	c, err := open(r, say)
	if err != nil {
		return nil, err
	}
	o, err := c.openSandbox(ctx, r)
	return o, explain(err)
}

// Stream runs the guest on a terminal of the sandbox.
func (Provider) Stream(ctx context.Context, r *protocol.Request, connected func() (io.Reader, io.Writer)) (int, error) {
	c, err := open(r, nil)
	if err != nil {
		return 0, err
	}
	id, toolbox, _ := strings.Cut(r.Ref, "@")
	b := &sandbox{ID: id, Toolbox: toolbox}
	if toolbox == "" {
		if b, err = c.get(ctx, id); err == nil && b == nil {
			err = &protocol.Error{Kind: protocol.Gone, Message: "the sandbox " + id + " is not there any more",
				Hint: "the next command opens it again"}
		}
		if err != nil {
			return 0, explain(err)
		}
	}
	code, err := c.stream(ctx, b, r.Argv, connected)
	return code, explain(err)
}

// List finds what carries the tags.
func (Provider) List(ctx context.Context, r *protocol.Request, say provider.Progress) ([]protocol.Found, error) {
	c, err := open(r, say)
	if err != nil {
		return nil, err
	}
	if len(r.Tags) == 0 {
		return nil, protocol.Errorf(protocol.Internal, "the request names no tags")
	}
	all, err := c.list(ctx, r.Tags)
	if err != nil {
		return nil, explain(err)
	}
	var found []protocol.Found
	for _, b := range all {
		if b.gone() || !b.has(r.Tags) {
			continue
		}
		f := protocol.Found{
			Ref:     b.ref(),
			Name:    b.Name,
			Tags:    b.Labels,
			Running: b.State != "stopped" && b.State != "archived" && b.State != "error" && b.State != "build_failed",
		}
		if b.Created != nil {
			f.Created = *b.Created
		}
		found = append(found, f)
	}
	return found, nil
}

// other is the second name that an environment's sandbox may have: names are had
// once, and what is restored is made before the one that stands is removed.
func other(name string) string { return name + "-2" }

// standing finds the sandbox of a request, by what berth has kept of it and by its
// names. nil is that there is none; one that is gone is returned when nothing else
// stands.
func (c *client) standing(ctx context.Context, r *protocol.Request) (gone *sandbox, err error) {
	at := []string{r.Name}
	if id := idOf(r.Ref); id != "" {
		at = []string{id, r.Name, other(r.Name)}
	}
	for _, name := range at {
		b, err := c.get(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case b == nil:
		case b.gone():
			if b.has(r.Tags) {
				gone = b
			}
		case b.has(r.Tags):
			return b, nil
		case name == r.Name:
			return nil, foreign(b)
		}
	}
	return gone, nil
}

// ours finds the sandbox of a request. taken is that it is one of Hermes'.
func (c *client) ours(ctx context.Context, r *protocol.Request) (b *sandbox, taken bool, err error) {
	if c.hermes == "" {
		b, err = c.standing(ctx, r)
		return b, false, err
	}
	b, err = c.get(ctx, "hermes-"+c.hermes)
	return b, b != nil && !b.has(r.Tags), err
}

// Stop stops the sandbox; its files stay.
func (Provider) Stop(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	c, err := open(r, say)
	if err != nil {
		return err
	}
	b, taken, err := c.ours(ctx, r)
	if err == nil && b != nil {
		b, err = c.halt(ctx, b)
	}
	if err == nil && b != nil && b.State == "stopped" && c.put && !taken {
		c.store(ctx, b)
	}
	return explain(err)
}

// Destroy deletes the sandbox; one that was taken over is stopped.
func (Provider) Destroy(ctx context.Context, r *protocol.Request, say provider.Progress) error {
	c, err := open(r, say)
	if err != nil {
		return err
	}
	// Twice: a restore that was killed may have left one under each name.
	for range 2 {
		b, taken, err := c.ours(ctx, r)
		switch {
		case err != nil || b == nil:
			return explain(err)
		case taken:
			c.say("the sandbox %s is one of Hermes': it is stopped, and stays", b.Name)
			_, err := c.halt(ctx, b)
			return explain(err)
		}
		if err := c.destroy(ctx, b); err != nil {
			return explain(err)
		}
	}
	return nil
}
