package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"berth/engine"
	"berth/internal/sys/pattern"
	"berth/jobs"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func (a *app) forwardCmd() *cobra.Command {
	var f envFlags
	var j joinFlags
	c := &cobra.Command{
		Use: "forward [flags] [JOB] [LOCAL:]PORT...",
		Long: `Open a port of this machine that leads to a service in an environment, or beside the
task of a running job: a notebook, TensorBoard, a model's server. The way is that of
berth exec: through a login host and an allocation, and also into a place without a network.

It listens on 127.0.0.1 alone, at LOCAL, or at the port's own number; 0 is any that is free.
On Linux, connections of other users than you and root are refused. It goes on until
ctrl-C, or until the job or the environment has ended.
` + exitHelp + `0 after ctrl-C, 2 a port that is taken or wrong, 3 no such job or environment,
5 the job or the environment ended, 75 it does not run yet.`,
		Example: `  berth forward 28fc56a4 8888              # then http://127.0.0.1:8888
  berth forward --env train 16006:6006
  berth forward --env train 8888 6006`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !cmd.Flags().Changed("env") && !isPorts(args[0]) {
				j.job, args = args[0], args[1:]
			}
			ports, err := parsePorts(args)
			if err != nil {
				return err
			}
			if j.job == "" && cmd.Flags().Changed("wait") {
				return usage("--wait goes with a job")
			}
			var to service
			if j.job != "" {
				to, err = a.join(cmd, &j)
			} else {
				to, err = a.meant(cmd, jobs.EnvOptions{Name: f.name})
			}
			if err != nil {
				return err
			}
			defer to.Close()
			return a.forward(cmd.Context(), to, ports)
		},
	}
	f.pick(c)
	j.add(c)
	return c
}

// forwardLine is the command that leads to the services of a job.
func forwardLine(short string, ports []int) string {
	words := []string{"berth forward", short}
	for _, p := range ports {
		words = append(words, strconv.Itoa(p))
	}
	return strings.Join(words, " ")
}

// service is a place with services: an environment, or that of a job.
type service interface {
	Connect(ctx context.Context, port int, conn io.ReadWriter) error
	Gone(ctx context.Context) (<-chan struct{}, error)
	Close()
}

// forwarded is a port of this machine and the one inside that it leads to.
type forwarded struct{ local, inside int }

var portWords = pattern.Lazy(`^[0-9]{1,5}(:[0-9]{1,5})?$`)

// isPorts tells whether a word is a port, or two, rather than a job's id.
func isPorts(word string) bool {
	_, err := parsePorts([]string{word})
	return err == nil
}

func parsePorts(words []string) ([]forwarded, error) {
	if len(words) == 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "no port is named", Hint: "berth forward JOB 8888, or berth forward --env NAME 8888"}
	}
	out := make([]forwarded, len(words))
	for i, w := range words {
		local, inside, two := strings.Cut(w, ":")
		if !two {
			inside = local
		}
		l, _ := strconv.Atoi(local)
		p, _ := strconv.Atoi(inside)
		if !portWords().MatchString(w) || l > 65535 || p < 1 || p > 65535 {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is no port", w), Hint: "PORT, or LOCAL:PORT, each at most 65535"}
		}
		out[i] = forwarded{l, p}
	}
	return out, nil
}

// forward listens at the ports until ctx or the place ends.
func (a *app) forward(ctx context.Context, to service, ports []forwarded) error {
	gone, err := to.Gone(ctx)
	if errors.Is(err, engine.ErrNotRunning) {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment does not run, so nothing in it listens",
			Hint: "berth bg start -- COMMAND starts a service"}
	} else if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	var under sync.WaitGroup
	var listeners []net.Listener
	defer func() {
		cancel()
		for _, l := range listeners {
			_ = l.Close()
		}
		under.Wait()
	}()
	for _, p := range ports { // all before any is served
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.local)))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("port %d of this machine is taken", p.local),
				Hint: fmt.Sprintf("name another: LOCAL:%d, or 0:%d for any that is free", p.inside, p.inside)}
		case errors.Is(err, syscall.EACCES):
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("port %d of this machine is for root alone", p.local),
				Hint: fmt.Sprintf("name another: %d:%d", p.local+8000, p.inside)}
		case err != nil:
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "listen", Err: err}
		}
		listeners = append(listeners, l)
	}
	for i, l := range listeners {
		a.say("%s leads to port %d inside; ctrl-C ends it", l.Addr(), ports[i].inside)
		under.Go(func() { a.serveForward(inner, to, l, ports[i].inside) })
	}
	select {
	case <-ctx.Done():
		return nil // that is how it ends
	case <-gone:
	}
	// Asking once more says why.
	if _, err = to.Gone(ctx); err == nil || errors.Is(err, engine.ErrNotRunning) {
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "what the port led to has ended, or the connection to it broke",
			Hint: "if it still runs, the same command opens the port again"}
	}
	return err
}

// serveForward serves one port until its listener is closed.
func (a *app) serveForward(ctx context.Context, to service, l net.Listener, port int) {
	var said sync.Map // each trouble once
	tell := func(err error) {
		if _, again := said.LoadOrStore(err.Error(), true); !again && ctx.Err() == nil {
			a.say("warning: %v", err)
		}
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			uid, err := loopbackUser(c.(*net.TCPConn))
			switch {
			case errors.Is(err, errors.ErrUnsupported):
			case err != nil:
				tell(fmt.Errorf("a connection was refused: %w", err))
				return
			case uid != 0 && uid != os.Getuid():
				tell(fmt.Errorf("a connection of another user of this machine (uid %d) was refused", uid))
				return
			}
			inner, gone := context.WithCancel(ctx)
			defer gone()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			if err := to.Connect(inner, port, client{c.(*net.TCPConn), gone}); err != nil && inner.Err() == nil {
				tell(err)
			}
		}()
	}
}

// client is a connection of a program of this machine, which calls gone when nothing can
// be written to it any more. A client that sends no more may still wait for an answer; of
// one that has closed its connection the kernel knows after a minute or so, by keepalive.
type client struct {
	conn *net.TCPConn
	gone func()
}

func (c client) Write(p []byte) (int, error) { return c.conn.Write(p) }

func (c client) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		go c.watch()
	case err != nil:
		c.gone()
	}
	return n, err
}

// watch waits until the other side is gone, or the connection is closed here.
func (c client) watch() {
	raw, err := c.conn.SyscallConn()
	if err == nil {
		_ = raw.Read(func(fd uintptr) bool {
			trouble, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			return err != nil || trouble != 0
		})
	}
	c.gone()
}
