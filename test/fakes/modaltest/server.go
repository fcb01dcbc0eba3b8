package modaltest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The keys that are accepted.
const (
	TokenID     = "ak-stand-in"
	TokenSecret = "as-stand-in"
)

// Server is a running stand-in.
type Server struct {
	// Delay of scheduling and of building images; 0 is at once. Set before use.
	Delay time.Duration
	// TokenLife is how long the token is said to be good still.
	TokenLife time.Duration
	// PerSecond is how many sandboxes are made within any second, as Modal bounds
	// it for an account: more are refused, without a word about waiting. What is
	// refused does not count. 0 is no bound. Set before use.
	PerSecond int
	// Together is how many creations wait for each other, the first ones: they are
	// looked at when all have come. Set before use.
	Together int

	dir  string
	own  string // of all its ids: another one on this machine must not take our processes for its own
	grpc *grpc.Server
	addr string
	pb.UnimplementedModalClientServer
	router

	mu        sync.Mutex
	calls     []string // methods without their service, in order
	faults    []*Fault
	secrets   map[string]map[string]string
	apps      map[string]string // name -> id
	images    map[string]*image
	tags      map[string]string // name:tag -> image id
	sandboxes map[string]*Sandbox
	snapshots map[string]string // snapshot_id -> image id
	once      map[string]any    // idempotency key -> answer of a create
	creates   []time.Time       // within the last second
	refused   int               // creations, for the rate
	came      int               // creations, up to Together
	together  chan struct{}     // closed when that many have come
	epoch     int               // of the tokens for workers; older ones are refused
	seq       int
}

// Start serves on a free port of the loopback device. Sandboxes lie below dir.
func Start(dir string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		TokenLife: 1000 * time.Hour, dir: dir, own: rand.Text()[:12], addr: l.Addr().String(), secrets: map[string]map[string]string{}, apps: map[string]string{}, images: map[string]*image{},
		tags: map[string]string{}, sandboxes: map[string]*Sandbox{}, snapshots: map[string]string{}, once: map[string]any{}, together: make(chan struct{}),
	}
	s.router.s = s
	s.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream), grpc.MaxRecvMsgSize(100<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterModalClientServer(s.grpc, s)
	pb.RegisterTaskCommandRouterServer(s.grpc, &s.router)
	go func() { _ = s.grpc.Serve(l) }()
	return s, nil
}

// Close ends the server and everything in its sandboxes.
func (s *Server) Close() {
	for _, b := range s.Sandboxes() {
		s.end(b, pb.GenericResult_GENERIC_STATUS_TERMINATED)
	}
	s.grpc.Stop()
}

// URL is for MODAL_SERVER_URL.
func (s *Server) URL() string { return "http://" + s.addr }

// Environ is what a client of the stand-in needs in its environment.
func (s *Server) Environ() []string {
	return []string{
		"MODAL_SERVER_URL=" + s.URL(), "MODAL_TOKEN_ID=" + TokenID, "MODAL_TOKEN_SECRET=" + TokenSecret,
		"MODAL_CONFIG_PATH=" + filepath.Join(s.dir, "no-configuration"),
	}
}

// Calls are the methods called so far, without their service, and forgets them.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls
	s.calls = nil
	return c
}

// Sandboxes are all sandboxes that there ever were.
func (s *Server) Sandboxes() []*Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Sandbox
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	return all
}

// Running are the sandboxes that cost money.
func (s *Server) Running() []*Sandbox {
	var left []*Sandbox
	for _, b := range s.Sandboxes() {
		if b.Result() == nil {
			left = append(left, b)
		}
	}
	return left
}

// Images are the ids of the images that are not deleted.
func (s *Server) Images() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id := range s.images {
		ids = append(ids, id)
	}
	return ids
}

// Expire makes all tokens for workers invalid that were given so far.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
}

func (s *Server) id(prefix string) string {
	s.seq++
	return fmt.Sprintf("%s-%s%010d", prefix, s.own, s.seq)
}

// jwt is a token as the SDK reads it: only its end is looked at.
func jwt(subject string) string {
	enc := base64.RawURLEncoding
	return enc.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		enc.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"sub":%q}`, time.Now().Add(time.Hour).Unix(), subject)) + "." + enc.EncodeToString([]byte("sign"))
}

// refuse says what is wrong with the keys of a call.
func (s *Server) refuse(ctx context.Context, method string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	one := func(k string) string {
		if v := md.Get(k); len(v) > 0 { // the SDK repeats some
			return v[0]
		}
		return ""
	}
	if strings.HasPrefix(method, "/modal.task_command_router.") {
		s.mu.Lock()
		want := jwt(fmt.Sprint("worker ", s.epoch))
		s.mu.Unlock()
		// The middle part holds the time; the subject is what counts.
		got := strings.Split(strings.TrimPrefix(one("authorization"), "Bearer "), ".")
		if len(got) != 3 || subject(got[1]) != subject(strings.Split(want, ".")[1]) {
			return status.Error(codes.Unauthenticated, "token of the worker is not valid")
		}
		return nil
	}
	for _, k := range []string{"x-modal-client-type", "x-modal-client-version", "x-modal-libmodal-version", "x-modal-host"} {
		if one(k) == "" {
			return status.Errorf(codes.InvalidArgument, "no %s", k)
		}
	}
	if one("x-modal-token-id") != TokenID || one("x-modal-token-secret") != TokenSecret {
		return status.Error(codes.Unauthenticated, "Token ID or secret is not valid")
	}
	return nil
}

func subject(part string) string {
	text, _ := base64.RawURLEncoding.DecodeString(part)
	_, s, _ := strings.Cut(string(text), `"sub":`)
	return s
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	name := s.note(info.FullMethod)
	if err := s.refuse(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if strings.HasSuffix(name, "V2") && len(md.Get("x-modal-auth-token")) == 0 && !strings.HasPrefix(info.FullMethod, "/modal.task_command_router.") {
		return nil, status.Error(codes.Unauthenticated, "no x-modal-auth-token")
	}
	s.gather(ctx, name)
	f := s.fault(name, false)
	if f != nil && !f.After {
		f.wait(ctx)
		return nil, f.Err
	}
	// Calls with the same key are one call, of which only the first one counts.
	key := ""
	if k := md.Get("x-idempotency-key"); len(k) == 1 {
		key = name + " " + k[0]
		s.mu.Lock()
		last, again := s.once[key]
		s.mu.Unlock()
		if again {
			return last, nil
		}
	}
	resp, err := handle(ctx, req)
	if err == nil && key != "" {
		s.mu.Lock()
		s.once[key] = resp
		s.mu.Unlock()
	}
	if f != nil {
		f.wait(ctx)
		return nil, f.Err
	}
	return resp, err
}

// gather holds the first creations until all of them have come.
func (s *Server) gather(ctx context.Context, method string) {
	if method != "SandboxCreateV2" {
		return
	}
	s.mu.Lock()
	one := s.came < s.Together
	if one {
		if s.came++; s.came == s.Together {
			close(s.together)
		}
	}
	s.mu.Unlock()
	if one {
		select {
		case <-s.together:
		case <-ctx.Done():
		}
	}
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	name := s.note(info.FullMethod)
	if err := s.refuse(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	f := s.fault(name, true)
	if f == nil {
		return handle(srv, ss)
	}
	if f.Bytes == 0 && !f.After {
		f.wait(ss.Context())
		return f.Err
	}
	cut := &cutStream{ServerStream: ss, f: f}
	err := handle(srv, cut)
	if cut.done.Load() {
		return f.Err
	}
	return err
}

func (s *Server) note(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	return name
}

// home is where a sandbox lies.
func (s *Server) home(name, id string) string {
	if name == "" {
		name = id
	}
	return filepath.Join(s.dir, "sandboxes", name)
}

func (s *Server) logFile() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, "output-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// Setenv sets [Server.Environ] by a function such as testing.T.Setenv.
func (s *Server) Setenv(set func(name, value string)) {
	for _, v := range s.Environ() {
		name, value, _ := strings.Cut(v, "=")
		set(name, value)
	}
}

// End ends a sandbox from outside.
func (s *Server) End(id string, why pb.GenericResult_GenericStatus) {
	if b, err := s.find(id); err == nil {
		s.end(b, why)
	}
}

// Elapse takes so much from what a sandbox has left to live, and to be idle.
func (s *Server) Elapse(id string, d time.Duration) {
	b, err := s.find(id)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.result != nil {
		return
	}
	for _, l := range []*limit{&b.over, &b.idle} {
		if l.timer != nil && l.timer.Stop() {
			l.at = l.at.Add(-d)
			l.timer.Reset(time.Until(l.at))
		}
	}
}

// Published is the id of the image that has a name; "" is none.
func (s *Server) Published(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags[name]
}

// Refused is how many creations were refused for the rate.
func (s *Server) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Pending are the faults that have not come yet, or not as often as wanted.
func (s *Server) Pending() (left []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		left = append(left, *f)
	}
	return left
}
