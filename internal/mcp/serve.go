package mcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mostMessage is the longest message that is read, in bytes.
const mostMessage = 16 << 20

const (
	// mostIdle is how long a session by HTTP stays without a request of its client.
	mostIdle = time.Hour
	// endGrace is how long calls have to end when the server does.
	endGrace = 10 * time.Second
)

// Stream serves one client on a pair of streams, until it leaves or ctx ends.
func (s *Server) Stream(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	defer context.AfterFunc(ctx, s.end)()
	in, out, stop := pressed(ctx, in, out)
	defer stop()
	err := s.sdk.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: mostMessage})
	if ctx.Err() == nil && (err == nil || errors.Is(err, io.EOF) || errors.Is(err, sdk.ErrConnectionClosed)) {
		return nil
	}
	if ctx.Err() == nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "what the client writes is no message of the protocol", Err: err,
			Hint: "each line is one message of JSON-RPC; berth help --page mcp has clients"}
	}
	return err
}

// Listen opens what clients come in by: "unix:PATH" with an absolute path, or an address of the loopback such as
// "127.0.0.1:8765"; the port 0 is a free one.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	bad := func(why string, err error) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "--listen " + jobs.Printable(address) + ": " + why, Err: err,
			Hint: "--listen unix:/PATH, or --listen 127.0.0.1:PORT; from another machine: ssh -L"}
	}
	var l net.ListenConfig
	path, is := strings.CutPrefix(address, "unix:")
	if !is {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !at.Addr().IsLoopback() {
			return nil, bad("is no address of the loopback with a port", nil)
		}
		n, err := l.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, bad("listen", err)
		}
		return n, nil
	}
	// Whoever can open the socket can use the server: its directory has to be private. A
	// name that is no path, such as "@x", would be open to all of the machine.
	if !filepath.IsAbs(path) {
		return nil, bad("is no absolute path of a socket", nil)
	}
	dir := filepath.Dir(path)
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, bad("the directory of the socket", err)
	case !ours(fi) || fi.Mode().Perm()&0o077 != 0:
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the directory " + dir + " of the socket can be used by others", Hint: "chmod 700 " + dir}
	}
	if fi, err := os.Lstat(path); err == nil && fi.Mode().Type() == fs.ModeSocket {
		if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return nil, bad("another process listens there", nil)
		}
		_ = os.Remove(path) // one that was killed has left it
	}
	n, err := l.Listen(ctx, "unix", path)
	if err != nil {
		return nil, bad("listen", err)
	}
	return n, nil
}

// Token reads the token of a file of mode 0600, and makes the file where there is none.
func Token(path string) (string, error) {
	f, err := disk.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := disk.Create(path, []byte(hex.EncodeToString(secret)+"\n"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "write the file of the token", Err: err}
		}
		f, err = disk.OpenRegular(path)
	}
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "read the file of the token " + path, Err: err}
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !ours(fi) || fi.Mode().Perm()&0o077 != 0 {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the file of the token " + path + " can be read by others",
			Hint: "rm " + path + "; the next start makes another token"}
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 32 || strings.ContainsAny(token, " \t\r\n") {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the file " + path + " has no token of at least 32 characters",
			Hint: "rm " + path + "; the next start makes one"}
	}
	return token, nil
}

// Serve serves clients by streamable HTTP, until ctx ends. token is what they have to know;
// "" is that the listener alone keeps others out.
func (s *Server) Serve(ctx context.Context, n net.Listener, token string) error {
	h := &http.Server{
		Handler:           guard(n.Addr(), token, s.streamable()),
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, IdleTimeout: 5 * time.Minute,
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(n) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	s.end()
	// The handlers are not waited for by the library: a command is ended, and not left behind.
	for until := time.Now().Add(endGrace); len(s.calls) > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	_ = h.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}

// sessionless is the first version of the protocol that has no sessions: each request stands
// for itself, and names its version in this header.
const (
	sessionless   = "2026-07-28"
	versionHeader = "Mcp-Protocol-Version"
)

// streamable serves the versions of the protocol with sessions and the one without, which the
// library keeps apart. Without one a call ends with its request.
func (s *Server) streamable() http.Handler {
	handler := func(o sdk.StreamableHTTPOptions) http.Handler {
		o.MaxRequestBodyBytes = mostMessage
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &o)
	}
	with := handler(sdk.StreamableHTTPOptions{SessionTimeout: mostIdle})
	without := handler(sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(versionHeader) >= sessionless { // versions are dates
			without.ServeHTTP(w, r)
		} else {
			with.ServeHTTP(w, r)
		}
	})
}

// guard lets in who knows the token, and no page of a browser: neither one that calls this
// address from elsewhere (Origin) nor one whose own name was made to lead here (Host). A
// program may name this server itself as its Origin; a browser always sends Sec-Fetch-Site, too.
func guard(at net.Addr, token string, next http.Handler) http.Handler {
	tcp, loopback := at.(*net.TCPAddr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loopback && !isHost(r.Host, tcp.Port):
			http.Error(w, "this server has another name", http.StatusForbidden)
		case r.Header.Get("Sec-Fetch-Site") != "", r.Header.Get("Origin") != "" && (!loopback || !isOrigin(r.Header.Get("Origin"), tcp.Port)):
			http.Error(w, "pages of a browser are not served", http.StatusForbidden)
		case token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isHost reports whether a request names the loopback and this port.
func isHost(host string, port int) bool {
	name, p, err := net.SplitHostPort(host)
	if err != nil || p != fmt.Sprint(port) {
		return false
	}
	a, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && a.IsLoopback()
}

// isOrigin reports whether a request comes from the loopback and this port.
func isOrigin(origin string, port int) bool {
	host, is := strings.CutPrefix(origin, "http://")
	return is && isHost(host, port)
}

// ours reports whether a file belongs to this user.
func ours(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
