package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/mcp"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// withToken is a client that knows a token.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(w))
	return http.DefaultTransport.RoundTrip(r)
}

// Every transport serves the same.
func TestTransports(t *testing.T) {
	f := newFixture(t, all)
	check := func(name string, c *sdk.ClientSession) {
		t.Helper()
		var r ran
		if f.call(c, "run_command", map[string]any{"command": "echo " + name}, &r); r.Stdout != name+"\n" {
			t.Errorf("%s: %+v", name, r)
		}
		f.fails(c, "read_file", map[string]any{"path": "nope"}, 3, "nope")
	}
	check("memory", f.client(nil))

	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- f.server.Stream(t.Context(), in, out) }()
	c := f.connect(nil, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
	check("stream", c)
	_ = c.Close()
	if err := <-ended; err != nil {
		t.Errorf("the stream ended with %v", err)
	}

	token, err := mcp.Token(filepath.Join(t.TempDir(), "new", "token"))
	if err != nil {
		t.Fatal(err)
	}
	n := f.serve("127.0.0.1:0", token)
	check("tcp", f.connect(nil, overTCP(n, token)))
	refused(t, "http://"+n.Addr().String()+"/", token)

	path := filepath.Join(private(t), "s")
	f.serve("unix:"+path, "")
	dial := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	check("unix", f.connect(nil, &sdk.StreamableClientTransport{Endpoint: "http://berth/", HTTPClient: &http.Client{Transport: dial}}))
	if _, err := mcp.Listen(t.Context(), "unix:"+path); err == nil {
		t.Error("a socket that is used was taken away")
	}
}

// serve serves HTTP until the test ends.
func (f *fixture) serve(address, token string) net.Listener {
	f.Helper()
	n, err := mcp.Listen(f.Context(), address)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.server.Serve(ctx, n, token) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			f.Error(err)
		}
	})
	return n
}

func overTCP(n net.Listener, token string) *sdk.StreamableClientTransport {
	return &sdk.StreamableClientTransport{Endpoint: "http://" + n.Addr().String() + "/", HTTPClient: &http.Client{Transport: withToken(token)}}
}

// By HTTP, too, each version of the protocol is spoken, those with sessions and the one without:
// commands run, and the client asks its user.
func TestVersions(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			f := newFixture(t, all)
			token := strings.Repeat("0123456789abcdef", 4)
			asked := 0
			client := sdk.NewClient(&sdk.Implementation{Name: "x", Version: "1"}, &sdk.ClientOptions{
				ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					asked++
					return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"submit": true}}, nil
				}})
			c, err := client.Connect(t.Context(), overTCP(f.serve("127.0.0.1:0", token), token), &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if got := c.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("%s is spoken", got)
			}
			var r ran
			f.call(c, "run_command", map[string]any{"command": "x=1; cd /"}, nil)
			if f.call(c, "run_command", map[string]any{"command": "echo $x $PWD"}, &r); r.Stdout != "1 /\n" {
				t.Errorf("%+v", r)
			}
			var s submitted
			if f.call(c, "task_submit", map[string]any{"task": hello, "idempotency_key": "k"}, &s); s.Job == nil || asked != 1 {
				t.Fatalf("asked %d times: %+v", asked, s)
			}
			must(f.engine.Wait(t.Context(), s.Job.ID, nil))
		})
	}
}

// private is a directory that no one else can use.
func private(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refused are requests of a browser, and of who does not know the token.
func refused(t *testing.T, url, token string) {
	t.Helper()
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	for _, c := range []struct {
		name, host string
		headers    map[string]string
		code       int
	}{
		{"as it should be", "", nil, 200},
		{"no token", "", map[string]string{"Authorization": ""}, 401},
		{"another token", "", map[string]string{"Authorization": "Bearer " + strings.Repeat("0", 64)}, 401},
		{"a part of it", "", map[string]string{"Authorization": "Bearer " + token[:60]}, 401},
		{"a page", "", map[string]string{"Origin": "https://evil.example"}, 403},
		{"a program that names this server", "", map[string]string{"Origin": strings.TrimSuffix(url, "/")}, 200},
		{"a page of here", "", map[string]string{"Origin": strings.TrimSuffix(url, "/"), "Sec-Fetch-Site": "same-origin"}, 403},
		{"a page of another port", "", map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		{"a page of no origin", "", map[string]string{"Origin": "null"}, 403},
		{"a page in the latest version", "", map[string]string{"Origin": "https://evil.example", "Mcp-Protocol-Version": "2026-07-28"}, 403},
		{"no token in the latest version", "", map[string]string{"Authorization": "", "Mcp-Protocol-Version": "2026-07-28"}, 401},
		{"a page that hides", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a name that leads here", "evil.example", nil, 403},
		{"another port", "127.0.0.1:1", nil, 403},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+token)
		for k, v := range c.headers {
			r.Header.Set(k, v)
		}
		if c.host != "" {
			r.Host = c.host
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		_ = res.Body.Close()
		if res.StatusCode != c.code || bytes.Contains(b, []byte(token)) {
			t.Errorf("%s: %d %s", c.name, res.StatusCode, b)
		}
	}
}

func TestListen(t *testing.T) {
	t.Chdir(private(t)) // a relative path would be in a directory that is good enough
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for address, code := range map[string]int{
		"0.0.0.0:0": 2, ":8765": 2, "localhost:0": 2, "192.0.2.1:80": 2, "x": 2, "unix:/nope/s": 2, "unix:": 2, "unix:@x": 2, "unix:s": 2, "unix:./s": 2, "unix:" + filepath.Join(open, "s"): 78,
	} {
		if n, err := mcp.Listen(t.Context(), address); err == nil || jobs.CodeOf(err) != code {
			t.Errorf("%s: %v, %v", address, n, err)
		}
	}
	file := filepath.Join(open, "token")
	token, err := mcp.Token(file)
	if err != nil || len(token) != 64 {
		t.Fatal(token, err)
	}
	if again, err := mcp.Token(file); err != nil || again != token {
		t.Error("another token the second time", err)
	}
	for content, mode := range map[string]os.FileMode{token: 0o644, "short": 0o600, strings.Repeat("a b", 30): 0o600} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := mcp.Token(file); jobs.CodeOf(err) != 78 || strings.Contains(err.Error(), token) {
			t.Errorf("%v: %v", mode, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", file); err != nil {
		t.Fatal(err)
	}
	if _, err := mcp.Token(file); jobs.CodeOf(err) != 78 {
		t.Error(err)
	}
}

// A line that is no message, or is too long, ends the stream, and says so; of one without an
// end no more is read than a message may have.
func TestStreamRefuses(t *testing.T) {
	f := newFixture(t, all)
	const most = 16 << 20
	long := strings.Repeat("a", most)
	endless := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`), strings.NewReader(long), strings.NewReader(long), strings.NewReader(long))
	for name, in := range map[string]io.Reader{
		"no JSON":            strings.NewReader("hello\n"),
		"half a message":     strings.NewReader(`{"jsonrpc":"2.0","id":1,"meth`),
		"two in a line":      strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"} x` + "\n"),
		"no message":         strings.NewReader("{}\n"),
		"no bytes of a text": strings.NewReader("\x00\xff\xfe\n"),
		"too deep":           strings.NewReader(strings.Repeat("[", 1<<20)),
		"too long":           endless,
	} {
		var out bytes.Buffer
		read := &counted{in: in}
		ended := make(chan error, 1)
		go func() { ended <- f.server.Stream(t.Context(), read, closer{&out}) }()
		var err error
		select {
		case err = <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it goes on", name)
		}
		if jobs.CodeOf(err) != 5 || !strings.Contains(fmt.Sprint(err), "is no message of the protocol") {
			t.Errorf("%s: %v", name, err)
		}
		if n := read.n.Load(); n > most+1<<16 || out.Len() > 1<<16 {
			t.Errorf("%s: %d bytes were read, and %d written", name, n, out.Len())
		}
	}
}

// counted counts what is read.
type counted struct {
	in io.Reader
	n  atomic.Int64 // its reader may outlive the session
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (*counted) Close() error { return nil }

// FuzzStream: whatever comes in, what goes out are messages of the protocol, and the
// server ends when the stream does.
func FuzzStream(f *testing.F) {
	call := func(id int, method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
	}
	begin := call(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"x","version":"1"}}`) +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	f.Add([]byte(begin + call(2, "tools/list", "{}") + call(3, "tools/call", `{"name":"task_list","arguments":{"limit":1}}`)))
	f.Add([]byte(begin + call(2, "tools/call", `{"name":"task_status","arguments":{"id":"req-000000000000"}}`) + call(3, "prompts/get", `{"name":"task_file","arguments":{"goal":"x"}}`)))
	f.Add([]byte(begin + call(2, "tools/call", `{"name":"task_list","arguments":[1]}`) + call(2, "resources/read", `{"uri":"berth://job/x/diff"}`)))
	f.Add([]byte(begin + call(2, "tools/call", `{"name":"task_submit","arguments":{"task":"x","idempotency_key":"k"},"inputResponses":{"confirm":{"action":"accept","content":{"submit":true}}}}`)))
	f.Add([]byte(begin + `{"jsonrpc":"2.0","id":1e400,"method":"ping"}` + "\n[]\n{}\nnull\n\"x\"\n\x00\xff\n" + strings.Repeat("[", 20_000)))
	f.Add([]byte(`[` + strings.TrimSpace(call(1, "ping", "{}")) + `,{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`))
	f.Add([]byte(begin + begin + call(2, "no/such", "{}") + call(2, "ping", `{"_meta":{"progressToken":{}}}`) + call(-1, "tools/call", `{"name":5}`)))
	f.Add([]byte(begin + call(2, "server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`) + call(3, "initialize", `{"protocolVersion":"9999-99-99"}`)))
	f.Add([]byte(begin + `{"jsonrpc":"2.0","id":"x","result":{}}` + "\n" + `{"jsonrpc":"1.0","id":2,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","id":[1],"method":"ping"}` + "\n"))
	f.Add([]byte(begin + strings.Repeat(call(2, "ping", "{}"), 500) + call(3, "tools/call", `{"name":"task_list","arguments":{"limit":1,"label":"`+strings.Repeat("a", 1<<20)+`"}}`)))
	fix := newFixture(f, func(o *mcp.Options) { o.Submit, o.Environment = true, nil })
	f.Fuzz(func(t *testing.T, data []byte) {
		in, toServer := io.Pipe()
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = fix.server.Stream(ctx, in, closer{&out})
		}()
		_, _ = toServer.Write(data)
		_ = toServer.Close()
		<-ended
		if ctx.Err() != nil {
			t.Fatal("it did not end with its stream")
		}
		for line := range bytes.Lines(out.Bytes()) {
			var m struct {
				JSONRPC string `json:"jsonrpc"`
			}
			if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
				t.Fatalf("%q is no message: %v", line, err)
			}
		}
		if list, _ := fix.engine.Store.List(); len(list) != 0 {
			t.Fatal("a job was submitted")
		}
	})
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }
