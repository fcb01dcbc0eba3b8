package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options say what a server has.
type Options struct {
	Version string // of berth
	Engine  *engine.Engine
	// Environment returns the environment that the tools are bound to; nil is that there
	// are none of these tools. It is called at each use, and by one caller at a time.
	Environment func(context.Context) (*engine.Environment, error)
	Session     string        // of it, where a call names none
	Timeout     time.Duration // of a command that names none, as for [engine.ExecRequest]
	Fork        bool          // each command runs beside the session, from a copy of its state
	// Run has the tools that change the environment, Submit those that make and end jobs.
	Run, Submit bool
	// Unconfirmed submits contained tasks without a person.
	Unconfirmed bool
	Submitter   *Submitter
	// Dir is where task files are: below it, by relative paths.
	Dir string
	// Job shows a job, Review a result.
	Job    func(engine.View) Job
	Review func(*engine.Review, []engine.ReviewFile) any
	// Guide says how task files are written.
	Guide string
	// Now is the clock.
	Now func() time.Time
}

// A Server serves one or many clients with the same tools.
type Server struct {
	Options
	sdk      *sdk.Server
	requests *Requests
	calls    chan struct{} // those under way
	outputs  outputs

	// slack is never touched, and so takes no memory, but counts as heap: the library makes 200 KiB of
	// garbage a call, for which a small heap would be collected every few calls. A share of the heap
	// (GOGC) would also multiply what a client makes the server hold.
	slack []byte

	// base ends with the server: so do the calls under way.
	base context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	env    *engine.Environment
	record fs.FileInfo // of env, as it was when it was last read; nil is that it was not

	shown sync.Map // request id: the digest of what its client was asked to show; "" is that it has answered
}

// mostCalls is how many calls are served at a time; of more the client is told to wait.
const mostCalls = 64

const slack = 8 << 20

// New makes a server.
func New(o Options) *Server {
	s := &Server{Options: o, requests: RequestsIn(o.Engine.Store.Home(), o.Now), calls: make(chan struct{}, mostCalls), slack: make([]byte, slack)}
	s.base, s.end = context.WithCancel(context.Background())
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "berth", Version: o.Version}, &sdk.ServerOptions{
		Instructions: s.instructions(), Capabilities: &sdk.ServerCapabilities{}, Logger: slog.New(slog.DiscardHandler),
	})
	if o.Environment != nil {
		s.environmentTools()
	}
	s.jobTools()
	s.resources()
	s.prompts()
	return s
}

// SDK is the server as the protocol's library has it, for other transports.
func (s *Server) SDK() *sdk.Server { return s.sdk }

// Close ends the calls under way, and this server's use of its environment, which goes on.
func (s *Server) Close() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env != nil {
		_, _ = s.env.Leave(context.Background()) // what is left of it, berth gc finds
	}
}

func (s *Server) instructions() string {
	text := "berth runs tasks as jobs in containers on a cluster, and commands in one contained environment. " +
		"Output comes in pages: where an answer has next_offset, the next call with that offset goes on. "
	switch {
	case s.Environment == nil:
		text += "No environment is bound to this server. "
	case !s.Run:
		text += "The environment can be read and not changed. "
	default:
		text += "run_command keeps directory and variables from call to call, as one shell does. "
	}
	if s.Submit {
		text += "task_submit asks a person, outside of this conversation, before a job starts. Wait with task_wait, do not poll. "
	} else {
		text += "Jobs can be looked at; none can be submitted. "
	}
	return text + "Results are branches: a person reviews and merges them."
}

// environment is the one that the tools are bound to. Without the right to run
// commands it is read only while it runs.
func (s *Server) environment(ctx context.Context) (*engine.Environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env != nil {
		if err := s.still(); err != nil {
			return nil, err
		}
	}
	if s.env == nil {
		v, err := s.Environment(ctx)
		if err != nil {
			return nil, err
		}
		s.env = v
	}
	if s.Run {
		return s.env, nil
	}
	if _, err := s.env.State(ctx); errors.Is(err, engine.ErrNotRunning) {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the environment " + s.env.Spec.Name + " does not run, and this server does not start it",
			Hint: "berth exec --env " + s.env.Spec.Name + " -- true starts it; a server with --enable run may, too"}
	} else if err != nil {
		return nil, err
	}
	return s.env, nil
}

// still forgets the environment where it was removed, or is to be. The caller holds s.mu.
func (s *Server) still() error {
	same := true
	// A number of a file that was removed may be another one's.
	at, err := s.env.Record()
	if err != nil || s.record == nil || !os.SameFile(at, s.record) || !at.ModTime().Equal(s.record.ModTime()) {
		now, err := s.Engine.FindEnvironment(s.env.Spec.Name)
		if err != nil && jobs.KindOf(err) != jobs.KindNotFound {
			return err
		}
		same = err == nil && now.Spec.ID == s.env.Spec.ID
	}
	s.record = at
	if !same || s.env.Spec.Expired(time.Now()) {
		s.env.Close()
		s.env, s.record = nil, nil
	}
	return nil
}

// session is a session of the environment.
func (s *Server) session(ctx context.Context, name string) (*engine.Session, error) {
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	return s.sessionOf(v, name)
}

func (s *Server) sessionOf(v *engine.Environment, name string) (*engine.Session, error) {
	if name == "" {
		name = s.Session
	}
	return v.Session(name)
}

// hints are what a client is told of a tool before it is used.
type hints struct {
	reads, repeats, destroys, open bool
}

func (h hints) annotations() *sdk.ToolAnnotations {
	destroys, open := h.destroys, h.open
	return &sdk.ToolAnnotations{ReadOnlyHint: h.reads, IdempotentHint: h.repeats || h.reads, DestructiveHint: &destroys, OpenWorldHint: &open}
}

// schema is the schema of a type, made of its tags.
func schema(t reflect.Type) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", t, err))
	}
	return s
}

// tool adds a tool. What it returns is its structured output, and as JSON its text; an
// error is an answer, too, which the model reads. One that returns an [sdk.CallToolResult]
// answers by that.
func tool[In, Out any](s *Server, name, description string, h hints, do func(context.Context, *sdk.CallToolRequest, In) (Out, error)) {
	s.add(name, description, h, reflect.TypeFor[In](), reflect.TypeFor[Out](),
		func(ctx context.Context, r *sdk.CallToolRequest, read func(any) error) (any, error) {
			var in In
			if err := read(&in); err != nil {
				return nil, err
			}
			return do(ctx, r, in)
		})
}

// add adds a tool; read reads its arguments.
func (s *Server) add(name, description string, h hints, in, out reflect.Type,
	do func(ctx context.Context, r *sdk.CallToolRequest, read func(any) error) (any, error)) {
	if out == reflect.TypeFor[*sdk.CallToolResult]() {
		out = reflect.TypeFor[*submitOut]()
	}
	takes := schema(in)
	checked, err := takes.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", name, err))
	}
	t := &sdk.Tool{Name: name, Description: description, Annotations: h.annotations(), InputSchema: takes, OutputSchema: schema(out.Elem())}
	s.sdk.AddTool(t, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		select {
		case s.calls <- struct{}{}:
			defer func() { <-s.calls }()
		default:
			return failed(&jobs.Error{Kind: jobs.KindAgain, Msg: fmt.Sprintf("%d calls are under way", mostCalls),
				Hint: "wait for one of them"}), nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.base, cancel)()
		got, err := do(ctx, r, func(into any) error {
			if err := arguments(checked, r.Params.Arguments, into); err != nil {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "the arguments of " + name, Err: err, Hint: "tools/list has their schema"}
			}
			return nil
		})
		if err != nil {
			return failed(err), nil
		}
		if res, is := got.(*sdk.CallToolResult); is {
			return res, nil
		}
		return answer(got)
	})
}

// arguments reads and checks those of a call.
func arguments(checked *jsonschema.Resolved, raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	var any map[string]any
	if err := json.Unmarshal(raw, &any); err != nil {
		return err
	}
	if err := checked.Validate(any); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// answer is what a tool has found.
func answer(out any) (*sdk.CallToolResult, error) {
	b, err := encode(out)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(b)}}, StructuredContent: b}, nil
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Failure is what a tool says that failed, in the words of the command line.
type Failure struct {
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

// failure is an error for a client, and the same as a text.
func failure(err error) (f Failure, text string) {
	f = Failure{Message: jobs.Printable(err.Error()), Hint: jobs.Printable(jobs.HintOf(err)), ExitCode: jobs.CodeOf(err)}
	if errors.Is(err, context.Canceled) && jobs.KindOf(err) == jobs.KindUnknown {
		f = Failure{Message: "cancelled", ExitCode: jobs.CodeInterrupted}
	}
	text = "error: " + f.Message
	if f.Hint != "" {
		text += "\nhint: " + f.Hint
	}
	return f, text
}

// failed is the answer of a tool that failed.
func failed(err error) *sdk.CallToolResult {
	f, text := failure(err)
	b, merr := encode(map[string]Failure{"error": f})
	if merr != nil {
		b = json.RawMessage("{}")
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: b}
}

// progress tells the client of a call, who has asked for it, that it goes on: until stop
// is called. say changes the words.
func progress(ctx context.Context, r *sdk.CallToolRequest, words string) (say func(string), stop func()) {
	token := r.Params.GetProgressToken()
	if token == nil {
		return func(string) {}, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	next, done := make(chan string, 8), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for n := 1.0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case words = <-next:
			case <-tick.C:
			}
			// A client that has left hears nothing, and its call ends by itself.
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n,
				Message: fmt.Sprintf("%s, %s", words, time.Since(began).Round(time.Second))})
		}
	}()
	return func(text string) {
			select {
			case next <- jobs.Printable(text):
			default:
			}
		}, func() {
			cancel()
			<-done
		}
}

// client is what the client of a call says that it is.
func client(r *sdk.CallToolRequest) string {
	p := r.Session.InitializeParams()
	if p == nil || p.ClientInfo == nil {
		return ""
	}
	name := jobs.Printable(p.ClientInfo.Name + " " + p.ClientInfo.Version)
	return strings.TrimSpace(name[:min(len(name), 200)])
}
