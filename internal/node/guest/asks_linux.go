package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/link/wire"
	"berth/jobs"
	"berth/templates"

	"golang.org/x/time/rate"
)

// Bounds of what programs inside ask of berth.
const (
	maxAsk    = 2 << 20          // bytes of a request, and of an answer
	mostAsks  = 16               // at once; others wait
	askRate   = 10               // a second are taken
	askBurst  = 10               // that are taken without a pause, where there were none for a while
	askedIn   = 10 * time.Second // until a request is there
	askSocket = "ask"
	askTable  = "stubs.json"
	askBerth  = "berth"
	// maxScript is how long a script may be that goes with a request.
	maxScript = jobs.MaxJobScript
	// askAgain is how long a program waits before it asks for more of an answer.
	askAgain = 2 * time.Second
)

// asks is the way of programs inside to whoever opened the place: a program berth on
// their PATH, and stubs of others, which send their words over a socket. The guest
// decides nothing.
type asks struct {
	dir   string // "" is that there is none
	stubs []wire.Stub
}

// jobs is the directory for what comes back of jobs that were asked for; "" is none.
func (a *asks) jobs() string {
	if len(a.stubs) == 0 {
		return ""
	}
	return filepath.Join(a.dir, "jobs")
}

// envJobs names it to the commands.
const envJobs = "BERTH_JOBS"

// listenAsks makes the programs, and passes on what they are asked.
func (s *server) listenAsks(stubs []wire.Stub) error {
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
	for _, stub := range append([]wire.Stub{{Name: askBerth}}, stubs...) {
		if stub.Name == "" || strings.Trim(stub.Name, "abcdefghijklmnopqrstuvwxyz") != "" {
			return fmt.Errorf("%q cannot name a program", stub.Name)
		}
		line := "#!/bin/sh\nexec " + templates.Quote(self) + " " + VerbAsk + " " +
			templates.Quote(filepath.Join(dir, askSocket)) + " " + stub.Name + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(bin, stub.Name), []byte(line), 0o700); err != nil { //nolint:gosec // a program
			return err
		}
	}
	s.asks.dir, s.asks.stubs = dir, stubs
	if len(stubs) > 0 {
		table, err := json.Marshal(stubs)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, askTable), table, 0o600)
		}
		if err == nil {
			err = os.Mkdir(s.asks.jobs(), 0o700)
		}
		if err != nil {
			return err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, askSocket), Net: "unix"})
	if err != nil {
		return err
	}
	go s.serveAsks(l)
	return nil
}

// complete puts the program in front of the others.
func (a *asks) complete(p *place) {
	if a.dir != "" {
		p.set("PATH", filepath.Join(a.dir, "bin")+":"+p.get("PATH"))
		if dir := a.jobs(); dir != "" {
			p.set(envJobs, dir)
		}
	}
}

// serveAsks takes connections until the guest ends.
func (s *server) serveAsks(l *net.UnixListener) {
	slots, turns := make(chan struct{}, mostAsks), rate.NewLimiter(askRate, askBurst)
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
		time.Sleep(turns.Reserve().Delay())
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

// VerbAsk is the verb of berth-node that the program berth inside a place is, and the
// stubs of others.
const VerbAsk = "ask"

// AskMain is `berth-node ask SOCKET NAME WORDS...`: it sends the words, and with those of
// a stub that reads one its script, prints the answer and returns its exit code.
func AskMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) < 2 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node ask SOCKET NAME WORDS...")
		return jobs.CodeUsage
	}
	socket, name := args[0], args[1]
	dir, _ := os.Getwd()
	m := wire.AskMessage{Words: wire.Texts(args[2:]), Dir: wire.Text(dir)}
	if name != askBerth {
		m.Stub = name
		script, err := scriptOf(filepath.Join(filepath.Dir(socket), askTable), name, args[2:], stdin)
		if err != nil {
			_, _ = fmt.Fprintf(stderr, "%s: error: %v\n", name, err)
			return jobs.CodeTaskFailed
		}
		m.Script = wire.Text(script)
	}
	for {
		a, err := askFor(socket, m)
		if err != nil {
			_, _ = fmt.Fprintf(stderr, "%s: error: the berth outside of this task cannot be asked: %v\n", name, err)
			return jobs.CodeInfra
		}
		_, _ = io.WriteString(stdout, string(a.Out))
		_, _ = io.WriteString(stderr, string(a.Err))
		if len(a.Again) == 0 {
			return a.Code
		}
		m = wire.AskMessage{Words: a.Again, Dir: m.Dir}
		time.Sleep(askAgain)
	}
}

// scriptOf reads the script that goes with the words of a stub; "" is that it has none.
func scriptOf(table, name string, words []string, stdin io.Reader) (string, error) {
	b, err := os.ReadFile(table)
	var all []wire.Stub
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(s wire.Stub) bool { return s.Name == name })
	if i < 0 || !all[i].Script {
		return "", nil
	}
	file, reads := scriptFile(&all[i], words)
	switch {
	case !reads:
		return "", nil
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("unable to open file %s", file)
		}
		defer func() { _ = f.Close() }()
		stdin = f
	}
	b, err = io.ReadAll(io.LimitReader(stdin, maxScript+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("unable to read the script: %w", err)
	case len(b) > maxScript:
		return "", fmt.Errorf("the script has more than %d bytes", maxScript)
	}
	return string(b), nil
}

// scriptFile is the first word that is no option and no value of one; "" is that there is none.
func scriptFile(s *wire.Stub, words []string) (file string, reads bool) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		name, _, given := strings.Cut(w, "=")
		switch {
		case slices.Contains(s.NoScript, name):
			return "", false
		case w == "--" && i+1 < len(words):
			return words[i+1], true
		case len(w) < 2 || w[0] != '-':
			return w, true
		case !given && slices.Contains(s.Takes, w):
			i++
		}
	}
	return "", true
}

func askFor(socket string, m wire.AskMessage) (a wire.AskAnswer, err error) {
	b, err := json.Marshal(m)
	if err != nil {
		return a, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
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
