//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/jobs"
)

// Parts that the test binary plays as a process of its own.
const (
	roleVar    = "CONFORMANCE_ROLE"
	roleClient = "client"
	roleLook   = "look"
	// argVar is what the client does it with: on its command line it would be
	// taken for the process that it has started.
	argVar = "CONFORMANCE_ARG"
)

// client is a process that uses an environment, to be killed.
type client struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

// client starts one: "exec" runs the command arg, "put" writes the file arg
// without an end.
func (p *place) client(session, what, arg string) *client {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	c := &client{t: p.t, cmd: exec.Command(self, p.e.Store.Home(), p.v.Spec.Name, session, what)}
	c.cmd.Env = append(os.Environ(), roleVar+"="+roleClient, argVar+"="+arg)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.kill)
	return c
}

// kill is kill -9.
func (c *client) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// says waits for a line of the client.
func (c *client) says(word string) {
	c.t.Helper()
	line := make(chan string, 1)
	go func() {
		l, _ := c.out.ReadString('\n')
		line <- strings.TrimSpace(l)
	}()
	select {
	case l := <-line:
		if l != word {
			c.t.Errorf("the client said %q, not %q", l, word)
		}
	case <-time.After(wait):
		c.t.Fatalf("the client did not say %q", word)
	}
}

// beClient is that process.
func beClient(args []string) int {
	home, name, session, what, arg := args[0], args[1], args[2], args[3], os.Getenv(argVar)
	e, err := engine.Open(context.Background(), engine.Options{Home: home})
	if err != nil {
		return failClient(err)
	}
	v, err := e.FindEnvironment(name)
	if err != nil {
		return failClient(err)
	}
	s, err := v.Session(session)
	if err != nil {
		return failClient(err)
	}
	say := func(word string) { _, _ = fmt.Fprintln(os.Stdout, word) }
	switch what {
	case "exec":
		_, err = s.Exec(context.Background(), engine.ExecRequest{Command: jobs.Command{Shell: arg}, Timeout: -1, Waiting: func() { say("waiting") }})
	case "put":
		_, err = s.WriteFile(context.Background(), arg, &endlessFile{after: 4 << 20, tell: func() { say("writing") }}, jobs.WriteOptions{})
	}
	if err != nil {
		return failClient(err)
	}
	return 0
}

func failClient(err error) int {
	_, _ = fmt.Fprintln(os.Stderr, "client:", explain(err))
	return 1
}

// endlessFile is a file without an end, which tells when so much of it was taken.
type endlessFile struct {
	after int
	tell  func()
}

var _ io.Reader = &endlessFile{}

func (e *endlessFile) Read(p []byte) (int, error) {
	if e.after > 0 {
		if e.after -= len(p); e.after <= 0 {
			e.tell()
		}
	}
	return len(p), nil
}
