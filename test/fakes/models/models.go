// Package models plays the APIs of three vendors of models for tests: Anthropic's
// messages, OpenAI's chat completions and responses, and Gemini's generateContent, as
// JSON and as streams. It has no model: a test says what is answered, in Go or, for agents
// that are really run, in their prompt (see [Play]).
package models

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Host is the name that the server's certificate is for.
const Host = "example.com"

// Request is one that has come.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte
}

// Reply is what is answered.
type Reply struct {
	Text string // in a stream word by word
	// What the answer says of tokens: In has Cached in it, as OpenAI and Gemini count.
	In, Cached, Out int
	NoUsage         bool // it says nothing of them
	// Call is a tool that the model wants called, in place of Text; not of chat completions.
	Call *Call
	// Status, Header and Raw are an answer of another kind.
	Status int
	Header http.Header
	Raw    string
	// Between is called between two pieces of a stream.
	Between func()
}

// Call is one of a tool that the client has offered.
type Call struct {
	ID              string // "": made of the name
	Namespace, Name string // a namespace is of OpenAI's responses alone
	Arguments       any    // as JSON
}

// Server is the three vendors at once.
type Server struct {
	Key   string // that requests have to have; of a server without a function [Play] answers
	Roots *x509.CertPool

	mu       sync.Mutex
	reply    func(Request) Reply
	requests []Request
	addr     string
	cert     []byte
}

// Start starts one that ends with the test. Nothing of it is reached but by [Server.Dial].
func Start(t testing.TB, key string, reply func(Request) Reply) *Server {
	s := &Server{Key: key, reply: reply}
	h := httptest.NewTLSServer(s)
	t.Cleanup(h.Close)
	s.addr, s.Roots = h.Listener.Addr().String(), x509.NewCertPool()
	s.Roots.AddCert(h.Certificate())
	s.cert = h.Certificate().Raw
	return s
}

// StartPlain starts one that ends with the test, by HTTP on loopback, for programs that are
// told an address.
func StartPlain(t testing.TB, key string, reply func(Request) Reply) *Server {
	s := &Server{Key: key, reply: reply}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.addr = h.Listener.Addr().String()
	return s
}

// Addr is where it listens, on loopback.
func (s *Server) Addr() string { return s.addr }

// Authority is its certificate in PEM.
func (s *Server) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert})
}

// Dial connects to the server, whatever the host.
func (s *Server) Dial(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
}

// Requests are those that have come.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req := Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body}
	s.mu.Lock()
	s.requests = append(s.requests, req)
	count := len(s.requests)
	s.mu.Unlock()
	reply := Play
	if s.reply != nil {
		reply = s.reply
	}
	s.answer(w, r, req, reply(req), count)
}

// answer writes a reply as the vendor would whose path was asked.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request, reply Reply, count int) {
	if reply.Status != 0 || reply.Raw != "" {
		for name, values := range reply.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(max(reply.Status, 200))
		_, _ = io.WriteString(w, reply.Raw)
		return
	}
	if key := r.Header.Get("x-api-key") + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("x-goog-api-key"); key != s.Key {
		http.Error(w, `{"error":{"message":"no such key"}}`, http.StatusUnauthorized)
		return
	}
	var asked struct {
		Model   string
		Stream  bool
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal(req.Body, &asked)
	a := &answer{w: w, Reply: reply, model: asked.Model, id: fmt.Sprint(count), words: strings.SplitAfter(reply.Text, " ")}
	if reply.Call != nil {
		a.words = []string{""}
	}
	switch {
	case strings.HasSuffix(req.Path, "/messages"):
		a.anthropic(asked.Stream)
	case strings.HasSuffix(req.Path, "/chat/completions"):
		a.chat(asked.Stream, asked.Options.Usage)
	case strings.HasSuffix(req.Path, "/responses"):
		a.responses(asked.Stream)
	case strings.Contains(req.Path, "enerateContent"):
		a.gemini(strings.Contains(req.Path, ":stream"), r.URL.Query().Get("alt") == "sse")
	default:
		a.json(map[string]any{"path": req.Path})
	}
}

type object = map[string]any

type answer struct {
	Reply
	w     http.ResponseWriter
	model string
	id    string
	words []string
}

func (a *answer) json(v any) {
	a.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(a.w).Encode(v)
}

// event writes one of a stream, and sends it.
func (a *answer) event(name string, v any) {
	a.w.Header().Set("Content-Type", "text/event-stream")
	if name != "" {
		_, _ = fmt.Fprintf(a.w, "event: %s\n", name)
	}
	b, _ := json.Marshal(v)
	_, _ = fmt.Fprintf(a.w, "data: %s\n\n", b)
	_ = http.NewResponseController(a.w).Flush()
	if a.Between != nil {
		a.Between()
	}
}

func (a *answer) usage(v object) any {
	if a.NoUsage {
		return nil
	}
	return v
}

// id of the call, and its arguments as JSON.
func (c *Call) id() string { return cmp.Or(c.ID, "call_"+c.Name) }

func (c *Call) args() string {
	b, _ := json.Marshal(c.Arguments)
	return string(b)
}

func (a *answer) anthropic(stream bool) {
	all := object{"input_tokens": a.In - a.Cached, "cache_read_input_tokens": a.Cached, "output_tokens": a.Out}
	message := object{"id": "msg_" + a.id, "type": "message", "role": "assistant", "model": a.model, "stop_reason": nil, "stop_sequence": nil}
	block, piece, pieces, stop := object{"type": "text", "text": ""}, "text", a.words, "end_turn"
	whole := object{"type": "text", "text": a.Text}
	if c := a.Call; c != nil {
		block = object{"type": "tool_use", "id": c.id(), "name": c.Name, "input": object{}}
		whole = object{"type": "tool_use", "id": c.id(), "name": c.Name, "input": c.Arguments}
		piece, pieces, stop = "partial_json", []string{c.args()}, "tool_use"
	}
	if !stream {
		message["content"], message["stop_reason"], message["usage"] = []any{whole}, stop, a.usage(all)
		a.json(message)
		return
	}
	message["content"] = []any{}
	message["usage"] = a.usage(object{"input_tokens": a.In - a.Cached, "cache_read_input_tokens": a.Cached, "output_tokens": 1})
	a.event("message_start", object{"type": "message_start", "message": message})
	a.event("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block})
	kind := map[string]string{"text": "text_delta", "partial_json": "input_json_delta"}[piece]
	for _, p := range pieces {
		a.event("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": kind, piece: p}})
	}
	a.event("content_block_stop", object{"type": "content_block_stop", "index": 0})
	a.event("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil},
		"usage": a.usage(object{"output_tokens": a.Out})})
	a.event("message_stop", object{"type": "message_stop"})
}

func (a *answer) chat(stream, usage bool) {
	all := a.usage(object{"prompt_tokens": a.In, "completion_tokens": a.Out, "total_tokens": a.In + a.Out, "prompt_tokens_details": object{"cached_tokens": a.Cached}})
	if !stream {
		a.json(object{"object": "chat.completion", "model": a.model, "choices": []any{object{"index": 0, "message": object{"role": "assistant", "content": a.Text}}}, "usage": all})
		return
	}
	for _, word := range a.words {
		a.event("", object{"object": "chat.completion.chunk", "model": a.model, "choices": []any{object{"index": 0, "delta": object{"content": word}}}})
	}
	if usage && !a.NoUsage {
		a.event("", object{"object": "chat.completion.chunk", "model": a.model, "choices": []any{}, "usage": all})
	}
	_, _ = io.WriteString(a.w, "data: [DONE]\n\n")
}

func (a *answer) responses(stream bool) {
	item := object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": a.Text}}}
	if c := a.Call; c != nil {
		item = object{"type": "function_call", "call_id": c.id(), "name": c.Name, "arguments": c.args()}
		if c.Namespace != "" {
			item["namespace"] = c.Namespace
		}
	}
	whole := object{"id": "resp", "object": "response", "model": a.model, "output": []any{item},
		"usage": a.usage(object{"input_tokens": a.In, "output_tokens": a.Out, "total_tokens": a.In + a.Out, "input_tokens_details": object{"cached_tokens": a.Cached}})}
	if !stream {
		a.json(whole)
		return
	}
	a.event("response.created", object{"type": "response.created", "response": object{"id": "resp", "model": a.model, "usage": nil}})
	if a.Call == nil {
		for _, word := range a.words {
			a.event("response.output_text.delta", object{"type": "response.output_text.delta", "delta": word})
		}
		a.event("response.output_text.done", object{"type": "response.output_text.done", "text": a.Text})
	}
	a.event("response.output_item.done", object{"type": "response.output_item.done", "item": item})
	a.event("response.completed", object{"type": "response.completed", "response": whole})
}

func (a *answer) gemini(stream, events bool) {
	piece := func(text string, out int) object {
		part := object{"text": text}
		if c := a.Call; c != nil {
			part = object{"functionCall": object{"name": c.Name, "args": c.Arguments}}
		}
		candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{part}}}
		if out == a.Out {
			candidate["finishReason"] = "STOP"
		}
		return object{"candidates": []any{candidate},
			"usageMetadata": a.usage(object{"promptTokenCount": a.In, "cachedContentTokenCount": a.Cached, "candidatesTokenCount": out})}
	}
	switch {
	case !stream:
		a.json(piece(a.Text, a.Out))
	case events:
		for i, word := range a.words {
			a.event("", piece(word, a.Out*(i+1)/len(a.words)))
		}
	default:
		var list []any
		for i, word := range a.words {
			list = append(list, piece(word, a.Out*(i+1)/len(a.words)))
		}
		a.json(list)
	}
}
