package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"berth/internal/link/wire"
	"berth/templates"
)

// Bounds of what programs inside ask of berth.
const (
	maxAsk    = 2 << 20                // bytes of a request, and of an answer
	mostAsks  = 16                     // at once; others wait
	askPause  = 100 * time.Millisecond // between two that are taken
	askedIn   = 10 * time.Second       // until a request is there
	askSocket = "ask"
)

// asks is the way of programs inside to whoever opened the place: a program berth on
// their PATH, which sends its words over a socket. The guest decides nothing.
type asks struct {
	dir string // "" is that there is none
}

// listenAsks makes the program, and passes on what it is asked.
func (s *server) listenAsks() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := s.files.subdir()
	if err != nil {
		return err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	stub := "#!/bin/sh\nexec " + templates.Quote(self) + " " + VerbAsk + " " + templates.Quote(filepath.Join(dir, askSocket)) + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "berth"), []byte(stub), 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, askSocket), Net: "unix"})
	if err != nil {
		return err
	}
	s.asks.dir = dir
	go s.serveAsks(l)
	return nil
}

// complete puts the program in front of the others.
func (a *asks) complete(p *place) {
	if a.dir != "" {
		p.set("PATH", filepath.Join(a.dir, "bin")+":"+p.get("PATH"))
	}
}

// serveAsks takes connections until the guest ends.
func (s *server) serveAsks(l *net.UnixListener) {
	slots := make(chan struct{}, mostAsks)
	for {
		slots <- struct{}{}
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go func() {
				defer func() { <-slots }()
				defer func() { _ = c.Close() }()
				a := s.passAsk(c)
				if b, err := json.Marshal(a); err == nil {
					_ = c.SetWriteDeadline(time.Now().Add(askedIn))
					_, _ = c.Write(b)
				}
			}()
		} else {
			<-slots // no descriptor is left, for example
		}
		time.Sleep(askPause)
	}
}

// passAsk reads one request and passes it on.
func (s *server) passAsk(c *net.UnixConn) wire.AskAnswer {
	fail := func(text string) wire.AskAnswer {
		return wire.AskAnswer{Code: 2, Err: wire.Text("berth: error: " + text + "\n")}
	}
	_ = c.SetReadDeadline(time.Now().Add(askedIn))
	b, err := io.ReadAll(io.LimitReader(c, maxAsk+1))
	var m wire.AskMessage
	switch {
	case err != nil:
		return fail("the request did not come: " + err.Error())
	case len(b) > maxAsk:
		return fail(fmt.Sprintf("the request has more than %d bytes", maxAsk))
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return fail("the request is none: " + err.Error())
	}
	a, err := question[wire.AskAnswer](&s.net, wire.Ask, m)
	if err != nil {
		return fail("it cannot be passed on: " + err.Error())
	}
	return a
}

// VerbAsk is the verb of berth-node that the program berth inside a place is.
const VerbAsk = "ask"

// AskMain is `berth-node ask SOCKET WORDS...`: it sends the words, prints the answer and
// returns its exit code.
func AskMain(args []string, stdout, stderr io.Writer) int {
	a, err := askFor(args)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "berth: error: the berth outside of this task cannot be asked: %v\n", err)
		return 5
	}
	_, _ = io.WriteString(stdout, string(a.Out))
	_, _ = io.WriteString(stderr, string(a.Err))
	return a.Code
}

func askFor(args []string) (a wire.AskAnswer, err error) {
	if len(args) == 0 {
		return a, errors.New("its socket is not named")
	}
	dir, _ := os.Getwd()
	b, err := json.Marshal(wire.AskMessage{Words: wire.Texts(args[1:]), Dir: wire.Text(dir)})
	if err != nil {
		return a, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return a, err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write(b)
	if cerr := c.CloseWrite(); err == nil {
		err = cerr
	}
	if err != nil {
		return a, err
	}
	answer, err := io.ReadAll(io.LimitReader(c, maxAsk))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(answer, &a)
}
