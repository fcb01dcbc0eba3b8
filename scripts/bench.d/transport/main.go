// Command transport measures what carries commands and bytes between a client
// and a guest: berth's wire beside two libraries that one connection could be
// made of. It is a module of its own, so that berth does not depend on them.
//
//	cd scripts/bench.d/transport && CGO_ENABLED=0 go build -o /tmp/transport . && /tmp/transport
//
// Each talks to another process over its standard streams: a plain one, one
// behind a process that only passes bytes on, as a job step does, and one in a
// container of docker's. Today's far side is berth's guest, and behind the relay
// its keeper as well; the others answer requests, move bytes, and do no more.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/backends/all"
	"berth/engine"
	"berth/internal/link/mux"
	"berth/internal/link/session"
	"berth/internal/node"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/hashicorp/yamux"
	"golang.org/x/crypto/ssh"
)

var (
	runs   = flag.Int("n", 5, "runs of each")
	small  = flag.Int("small", 10000, "requests in a run")
	size   = flag.Int64("size", 1<<30, "bytes in a run")
	image  = flag.String("image", "", "an image of docker's, for -over docker")
	overs  = flag.String("over", "plain,relay", "what the far side is behind")
	ctx    = context.Background()
	self   = must(os.Executable())
	shared string // a directory in memory, the same inside of containers
)

// check ends the program: what it has measured so far was printed.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "transport:", err, jobs.HintOf(err))
		os.Exit(1)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func main() {
	switch {
	case node.Is(os.Args[1:]):
		os.Exit(node.Main(os.Args[1:]))
	case len(os.Args) == 3 && os.Args[1] == "far":
		far(os.Args[2])
	default:
		flag.Parse()
		measure()
	}
}

// streams are those of a process, as one connection.
type streams struct {
	io.ReadCloser
	io.WriteCloser
	net.Conn // nil: nothing of it is used but its name
	cmd      *exec.Cmd
}

func (s *streams) Read(p []byte) (int, error)  { return s.ReadCloser.Read(p) }
func (s *streams) Write(p []byte) (int, error) { return s.WriteCloser.Write(p) }
func (s *streams) LocalAddr() net.Addr         { return &net.UnixAddr{} }
func (s *streams) RemoteAddr() net.Addr        { return &net.UnixAddr{} }
func (s *streams) Close() error                { return s.WriteCloser.Close() }

func start(argv []string) *streams {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	s := &streams{WriteCloser: must(cmd.StdinPipe()), ReadCloser: must(cmd.StdoutPipe()), cmd: cmd}
	check(cmd.Start())
	return s
}

// behind is the command for a far side.
func behind(over string, args ...string) []string {
	switch over {
	case "relay":
		return append([]string{"sh", "-c", `cat | "$0" "$@" | cat`, self}, args...)
	case "docker":
		mounts := []string{"-v", self + ":" + self + ":ro", "-v", shared + ":" + shared}
		return slices.Concat([]string{"docker", "run", "-i", "--rm", "--network", "none"}, mounts, []string{"--entrypoint", self, *image}, args)
	}
	return append([]string{self}, args...)
}

// move copies, with nothing that io.Copy knows better.
func move(w io.Writer, r io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 64<<10))
}

// link is a connection of which something is measured.
type link struct {
	small func()                         // a request of about 100 bytes and its answer
	out   func(path string, w io.Writer) // a file comes out
	in    func(path string, r io.Reader) // a file goes in
	end   func()
}

// today is berth's wire; with frames, without its named pipes and its files for
// much data.
func today(over string, frames bool) link {
	var conn io.ReadWriteCloser
	var end func()
	io1 := filepath.Join(shared, "io")
	pipes := session.LocalPipes(io1, io1)
	if over == "relay" && !frames { // as in an allocation
		st := must(store.Open(filepath.Join(shared, "state")))
		e := &engine.Engine{Store: st, Backends: all.Backends(run.Local{}), Node: func() (string, error) { return self, nil },
			Getenv: os.LookupEnv, Now: time.Now, Sleep: engine.Sleep}
		v := must(e.Environment(ctx, jobs.EnvOptions{Name: "bench", Place: jobs.Place{Backend: jobs.BackendLocal}}))
		must(v.Open(ctx))
		dir := st.EnvDir("bench")
		l := mux.Link{Dir: dir, ID: v.Spec.ID, Node: self, Command: func(context.Context) (jobs.Cmd, error) {
			return jobs.Cmd{Argv: behind(over, "connect", "--env", dir, "--mux"), Dir: "/"}, nil
		}}
		pipes = l.Pipes(filepath.Join(dir, "io"), filepath.Join(dir, "io"))
		var err error
		conn, _, err = l.Dial(ctx)
		check(err)
		end = func() {
			check(l.End(ctx))
			check(v.Remove(ctx, true))
			v.Close()
		}
	} else {
		c := start(behind(over, "guest"))
		conn, end = c, func() { _ = c.cmd.Wait() }
	}
	if frames {
		pipes = nil
	}
	s := must(session.Open(ctx, conn, conn, session.Options{PingTimeout: -1, Pipes: pipes, Home: shared, Dir: "/"}))
	return link{
		small: func() { must(s.Stat(ctx, "bench", "/")) },
		out:   func(path string, w io.Writer) { must(s.ReadFile(ctx, "bench", path, 0, *size, w)) },
		in:    func(path string, r io.Reader) { must(s.WriteFile(ctx, "bench", path, r, session.WriteOptions{})) },
		end: func() {
			_ = s.Close()
			end()
		},
	}
}

// channel is one conversation over a connection of a library's.
type channel interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// half is a stream of yamux, whose Close is of one direction.
type half struct{ *yamux.Stream }

func (h half) CloseWrite() error { return h.Stream.Close() }

// What is the fastest of both.
var (
	config = &yamux.Config{AcceptBacklog: 256, KeepAliveInterval: time.Hour, ConnectionWriteTimeout: time.Minute, MaxStreamWindowSize: 8 << 20,
		StreamCloseTimeout: time.Minute, StreamOpenTimeout: time.Minute, LogOutput: io.Discard}
	ciphers = ssh.Config{Ciphers: []string{ssh.CipherAES128GCM}}
)

func library(over, name string) link {
	c := start(behind(over, "far", name))
	var open func() channel
	if name == "yamux" {
		s := must(yamux.Client(c, config))
		open = func() channel { return half{must(s.OpenStream())} }
	} else {
		conn, chans, reqs, err := ssh.NewClientConn(c, "far", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey(), Config: ciphers})
		check(err)
		client := ssh.NewClient(conn, chans, reqs)
		open = func() channel {
			ch, reqs, err := client.OpenChannel("bench", nil)
			check(err)
			go ssh.DiscardRequests(reqs)
			return ch
		}
	}
	ask := func(op, path string, in io.Reader, out io.Writer) {
		ch := open()
		defer func() { _ = ch.Close() }()
		must(fmt.Fprintf(ch, "%-128s", op+" "+path))
		if in != nil {
			move(ch, in)
			check(ch.CloseWrite())
		}
		move(out, ch)
	}
	return link{
		small: func() { ask("small", "/some/path", nil, io.Discard) },
		out:   func(path string, w io.Writer) { ask("out", path, nil, w) },
		in:    func(path string, r io.Reader) { ask("in", path, r, io.Discard) },
		end: func() {
			_ = c.Close()
			_ = c.cmd.Wait()
		},
	}
}

// far is the other side of a library.
func far(name string) {
	c := &streams{ReadCloser: os.Stdin, WriteCloser: os.Stdout}
	if name == "yamux" {
		s := must(yamux.Server(c, config))
		for st, err := s.AcceptStream(); err == nil; st, err = s.AcceptStream() {
			go serve(half{st})
		}
		return
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	conf := &ssh.ServerConfig{NoClientAuth: true, Config: ciphers}
	conf.AddHostKey(must(ssh.NewSignerFromKey(key)))
	_, chans, reqs, err := ssh.NewServerConn(c, conf)
	check(err)
	go ssh.DiscardRequests(reqs)
	for n := range chans {
		ch, reqs, err := n.Accept()
		check(err)
		go ssh.DiscardRequests(reqs)
		go serve(ch)
	}
}

// serve answers one request.
func serve(ch channel) {
	var op, path string
	b := make([]byte, 128)
	must(io.ReadFull(ch, b))
	must(fmt.Sscan(string(b), &op, &path))
	if op == "small" {
		must(ch.Write(b))
	} else {
		f := must(os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600))
		if op == "out" {
			move(ch, f)
		} else {
			move(f, ch)
		}
		_ = f.Close()
	}
	_, _ = ch.CloseWrite(), ch.Close()
}

// zeros are what goes in, and counter counts what comes out.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func measure() {
	shared = must(os.MkdirTemp("/dev/shm", "berth-transport-"))
	defer func() { _ = os.RemoveAll(shared) }()
	check(os.Mkdir(filepath.Join(shared, "io"), 0o700))
	from, to := filepath.Join(shared, "from"), filepath.Join(shared, "to")
	check(os.WriteFile(from, make([]byte, *size), 0o600))
	names := []string{"today", "frames", "yamux", "ssh"}
	for over := range strings.SplitSeq(*overs, ",") {
		took := map[string][]float64{}
		for i := range *runs * len(names) { // in turns: the machine's speed changes
			name := names[(i+i/len(names))%len(names)]
			var l link
			if i := slices.Index(names, name); i < 2 {
				l = today(over, i == 1)
			} else {
				l = library(over, name)
			}
			note := func(what string, n int, do func()) {
				began := time.Now()
				for range n {
					do()
				}
				took[what+" "+name] = append(took[what+" "+name], time.Since(began).Seconds())
			}
			l.small() // what is made at the first use
			note("small", *small, l.small)
			var c counter
			note("out", 1, func() { l.out(from, &c) })
			note("in", 1, func() { l.in(to, io.LimitReader(zeros{}, *size)) })
			l.end()
			if fi := must(os.Stat(to)); c.n != *size || fi.Size() != *size {
				check(fmt.Errorf("%s, %s: %d bytes out, %d in", over, name, c.n, fi.Size()))
			}
			check(os.Remove(to))
		}
		for _, what := range []string{"small", "out", "in"} {
			base := 0.0
			for _, name := range names {
				if all := took[what+" "+name]; len(all) > 0 {
					slices.Sort(all)
					if base == 0 {
						base = all[len(all)/2]
					}
					fmt.Printf("%-6s %-5s %-6s %8.3f s (%.3f to %.3f), x %.2f as fast\n", over, what, name,
						all[len(all)/2], all[0], all[len(all)-1], base/all[len(all)/2])
				}
			}
		}
	}
}
