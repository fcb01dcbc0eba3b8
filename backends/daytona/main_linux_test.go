package daytona_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/internal/link/session"
	"berth/internal/node"
	"berth/test/fakes/daytonatest"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// The test binary is the guest program, too.
func TestMain(m *testing.M) {
	if node.Is(os.Args[1:]) {
		os.Exit(node.Main(os.Args[1:]))
	}
	daytona.Hurry(50 * time.Millisecond)
	daytona.Unhurried()
	os.Exit(m.Run())
}

// specs are what requests and answers are held against: ours, and the service's
// own where someone has put them beside the project.
var specs = sync.OnceValues(func() (all [2][]routers.Router, err error) {
	load := func(i int, doc *openapi3.T) error {
		doc.Servers = nil
		r, err := gorillamux.NewRouter(doc)
		all[i] = append(all[i], r)
		return err
	}
	for i, name := range []string{"api", "toolbox"} {
		doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join("testdata", name+".yaml"))
		if err == nil {
			err = doc.Validate(context.Background())
		}
		if err == nil {
			err = load(i, doc)
		}
		if err != nil {
			return all, err
		}
	}
	full := os.Getenv("BERTH_DAYTONA_SPECS")
	if full == "" {
		full = filepath.Join("..", "..", "..", "shared", "daytona")
	}
	if _, err := os.Stat(full); err != nil {
		return all, nil
	}
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(full, "api.json"))
	if err != nil {
		return all, err
	}
	if err := load(0, doc); err != nil {
		return all, err
	}
	b, err := os.ReadFile(filepath.Join(full, "toolbox.json"))
	if err != nil {
		return all, err
	}
	var two openapi2.T
	if err := two.UnmarshalJSON(b); err != nil {
		return all, err
	}
	three, err := openapi2conv.ToV3(&two)
	if err != nil {
		return all, err
	}
	return all, load(1, three)
})

// held wraps a server so that what goes in and out is held against the specs.
func held(t *testing.T) func(http.Handler) http.Handler {
	all, err := specs()
	if err != nil {
		t.Fatal(err)
	}
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			which, path := 0, strings.TrimPrefix(r.URL.Path, "/api")
			if rest, ok := strings.CutPrefix(r.URL.Path, "/toolbox/"); ok {
				_, rest, _ = strings.Cut(rest, "/")
				which, path = 1, "/"+rest
			}
			upload := strings.HasPrefix(path, "/files/")
			var body []byte
			if !upload {
				body, _ = io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			answer := httptest.NewRecorder()
			if strings.HasSuffix(path, "/connect") {
				h.ServeHTTP(w, r)
			} else {
				h.ServeHTTP(answer, r)
				for k, v := range answer.Header() {
					w.Header()[k] = v
				}
				w.WriteHeader(answer.Code)
				_, _ = w.Write(answer.Body.Bytes())
			}
			asked := r.Clone(context.Background())
			asked.URL.Path, asked.URL.Host, asked.URL.Scheme = path, "", ""
			asked.Body = io.NopCloser(bytes.NewReader(body))
			for i, router := range all[which] {
				route, params, err := router.FindRoute(asked)
				if err != nil {
					t.Errorf("spec %d: %s %s: %v", i, r.Method, path, err)
					continue
				}
				in := &openapi3filter.RequestValidationInput{Request: asked, Route: route, PathParams: params, Options: &openapi3filter.Options{
					AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, ExcludeRequestBody: upload}}
				if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
					t.Errorf("spec %d: %s %s: %v\n%s", i, r.Method, path, err, body)
				}
				asked.Body = io.NopCloser(bytes.NewReader(body))
				if upload || answer.Code != 200 && answer.Code != 201 || strings.HasSuffix(path, "/connect") {
					continue
				}
				out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: answer.Code, Header: answer.Header(), Options: in.Options}
				out.SetBodyBytes(answer.Body.Bytes())
				if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
					t.Errorf("spec %d: the answer to %s %s: %v\n%s", i, r.Method, path, err, answer.Body)
				}
			}
		})
	}
}

// service is a fake Daytona that the environment points to.
func service(t *testing.T, o daytonatest.Options) *daytonatest.Server {
	t.Helper()
	for _, v := range []string{"DAYTONA_SERVER_URL", "DAYTONA_JWT_TOKEN", "DAYTONA_TARGET", "DAYTONA_ORGANIZATION_ID", "HTTP_PROXY", "http_proxy"} {
		t.Setenv(v, "")
	}
	o.Wrap = held(t)
	s := daytonatest.New(t.TempDir(), o)
	t.Cleanup(s.Close)
	t.Setenv("DAYTONA_API_URL", s.URL)
	t.Setenv("DAYTONA_API_KEY", daytonatest.Key)
	return s
}

var self = sync.OnceValues(func() (*protocol.Guest, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return &protocol.Guest{Path: path, SHA256: hex.EncodeToString(h.Sum(nil)), Arch: runtime.GOARCH}, err
})

// request is what berth asks for, of an environment.
func request(t *testing.T, env string) *protocol.Request {
	t.Helper()
	g, err := self()
	if err != nil {
		t.Fatal(err)
	}
	return &protocol.Request{
		Berth: protocol.Version, Backend: "daytona", Name: "berth-" + env,
		Tags:    map[string]string{protocol.TagVersion: "1", protocol.TagOwner: "o1", protocol.TagEnv: env},
		Options: map[string]string{}, Guest: g,
		Spec: &protocol.Spec{Image: "debian:12", CPUs: 1, MemoryMiB: 1500, Network: protocol.Network{Mode: protocol.NetworkOpen}, Persistent: true, LifetimeSeconds: 3600, IdleSeconds: 600},
	}
}

// said collects progress.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.text.WriteString(strings.TrimSpace(fmt.Sprintf(format, args...)) + "\n")
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func open(t *testing.T, r *protocol.Request) *protocol.Opened {
	t.Helper()
	o, err := daytona.Provider{}.Open(t.Context(), r, (&said{}).say)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r.Ref = o.Ref
	return o
}

// talk opens a stream and a session over it. end waits for the stream's end.
func talk(t *testing.T, r *protocol.Request, o *protocol.Opened) (s *session.Session, end func() (int, error)) {
	t.Helper()
	s, end, err := talkTo(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, end
}

func talkTo(ctx context.Context, r *protocol.Request, o *protocol.Opened) (s *session.Session, end func() (int, error), err error) {
	q := *r
	q.Argv = []string{o.Guest, "guest"}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	connected := make(chan struct{})
	type result struct {
		code int
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		code, err := daytona.Provider{}.Stream(ctx, &q, func() (io.Reader, io.Writer) { close(connected); return inR, outW })
		_ = outW.CloseWithError(io.EOF)
		_ = inR.CloseWithError(io.ErrClosedPipe)
		ended <- result{code, err}
	}()
	end = func() (int, error) {
		select {
		case e := <-ended:
			ended <- e
			return e.code, e.err
		case <-time.After(2 * time.Minute):
			return 0, errors.New("the stream does not end")
		}
	}
	select {
	case <-connected:
	case e := <-ended:
		return nil, end, e.err
	}
	s, err = session.Open(ctx, outR, inW, session.Options{PingTimeout: -1, LeaveGrace: -1})
	return s, end, err
}

func kindOf(err error) protocol.Kind {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// smallGuest is a program that no stream is opened to.
func smallGuest(t *testing.T) *protocol.Guest {
	t.Helper()
	text := []byte("#!/bin/sh\n")
	path := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return &protocol.Guest{Path: path, SHA256: hex.EncodeToString(sum[:]), Arch: runtime.GOARCH}
}
