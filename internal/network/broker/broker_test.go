package broker

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/jobs"
	"berth/test/fakes/models"
)

const hello = `{"model":"claude-x","messages":[{"role":"user","content":"hello"}]}`

// What programs send comes with the key, and with nothing of theirs that is one.
func TestKey(t *testing.T) {
	w := (&world{}).start(t, "anthropic", "openai", "gemini")
	for _, v := range []struct{ name, path, body, header, want string }{
		{"anthropic", "/v1/messages?beta=true", hello, "X-Api-Key", key},
		{"openai", "/v1/chat/completions", hello, "Authorization", "Bearer " + key},
		{"openai", "/v1/responses", `{"model":"m","input":"x"}`, "Authorization", "Bearer " + key},
		{"gemini", "/v1beta/models/gemini-x:generateContent?key=" + placeholder + "&alt=json&fields=text", `{}`, "X-Goog-Api-Key", key},
	} {
		status, body, _, err := w.ask(v.name, "POST", v.path, v.body, "X-Goog-Api-Key", "mine", "Cookie", "a=b", "X-HTTP-Method-Override", "DELETE", "Connection", "X-Drop", "X-Drop", "1")
		if status != 200 || err != nil || strings.Contains(body, key) {
			t.Fatalf("%s: %d %s %v", v.name, status, body, err)
		}
		all := w.server.Requests()
		got := all[len(all)-1]
		if got.Header.Get(v.header) != v.want || string(got.Body) != v.body {
			t.Errorf("%s: %v %s", v.name, got.Header, got.Body)
		}
		for name, values := range got.Header {
			if text := strings.Join(values, " "); name != v.header && (strings.Contains(text, key) || strings.Contains(text, placeholder) || text == "mine") ||
				name == "Cookie" || name == "X-Http-Method-Override" || name == "X-Drop" {
				t.Errorf("%s: %s: %s", v.name, name, text)
			}
		}
		if strings.Contains(got.Query, "key") || strings.Contains(got.Query, "fields") {
			t.Errorf("%s: %s", v.name, got.Query)
		}
	}
	w.used(4)
	if u := w.b.Usage(); u.Requests != 4 || u.Input != 40 || u.Output != 12 || u.Estimated {
		t.Errorf("%+v", u)
	}
	if s := fmt.Sprintf("%v %+v %#v %s", w.b.list["openai"].Credential, w.b.list["openai"].Credential, w.b.list["openai"].Credential, w.b.list["openai"].Credential); strings.Contains(s, key) {
		t.Error(s)
	}
}

func TestPlaceholder(t *testing.T) {
	w := (&world{}).start(t, "anthropic", "github")
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, v := range []struct {
		header, value string
		status        int
	}{
		{"Authorization", "Bearer " + placeholder, 200}, {"authorization", "bearer  " + placeholder, 200}, {"x-api-key", placeholder, 200}, {"X-Goog-Api-Key", placeholder, 200},
		{"Authorization", basic("x:" + placeholder), 200},
		{"Authorization", "Bearer " + placeholder + "x", 401}, {"Authorization", "", 401}, {"Authorization", basic(placeholder), 401}, {"X-Other", placeholder, 401}, {"x-api-key", key, 401},
	} {
		status, body, _, err := w.ask("anthropic", "POST", "/v1/messages", hello, "Authorization", "", v.header, v.value)
		if status != v.status || err != nil || status == 401 && !strings.Contains(body, `"type":"authentication_error"`) {
			t.Errorf("%s: %s: %d %s %v", v.header, v.value, status, body, err)
		}
	}
	if n := len(w.server.Requests()); n != 5 {
		t.Errorf("%d requests have left", n)
	}
}

func TestRefused(t *testing.T) {
	w := (&world{}).start(t, "anthropic", "openai", "gemini", "huggingface", "github")
	for _, v := range []struct {
		name, method, path string
		status             int
		says               string
	}{
		{"anthropic", "DELETE", "/v1/messages", 403, `"permission_error"`},
		{"anthropic", "POST", "/v1/files", 403, "not allowed"},
		{"anthropic", "POST", "/v1/messages/batches", 403, "not allowed"},
		{"anthropic", "POST", "/v1/x/../messages", 403, "not below"},
		{"anthropic", "POST", "/v1/%6dessages", 403, "not below"},
		{"anthropic", "POST", "//v1/messages", 403, "not below"},
		{"anthropic", "POST", "/v1/messages/", 403, "not allowed"},
		{"anthropic", "GET", "/v1/messages?a=%zz", 400, "query"},
		{"openai", "POST", "/chat/completions", 403, "base URL"},
		{"openai", "POST", "/v1x/chat/completions", 403, "base URL"},
		{"gemini", "POST", "/v1beta/cachedContents", 403, `"PERMISSION_DENIED"`},
		{"huggingface", "POST", "/api/repos/create", 403, `"hint"`},
		{"huggingface", "GET", "/a/%2e%2e/b", 403, "not below"},
		{"huggingface", "GET", "/a/%252e%252e/b", 403, "not below"},
		{"github", "GET", "/o/r/info/refs?service=git-receive-pack", 403, "cannot push"},
		{"github", "POST", "/o/r/git-receive-pack", 403, "cannot push"},
		{"github", "GET", "/o/r/info/refs", 403, "no fetch"},
		{"github", "GET", "/o/r/info/refs?service=git-upload-pack&service=git-receive-pack", 403, "no fetch"},
		{"github", "GET", "/o/r/raw/main/x", 403, "no fetch"},
	} {
		status, body, _, err := w.ask(v.name, v.method, v.path, "")
		if status != v.status || err != nil || !strings.Contains(body, v.says) {
			t.Errorf("%s %s %s: %d %s %v", v.name, v.method, v.path, status, body, err)
		}
	}
	for path, want := range map[string]int{"/api/models/x/revision/refs%2Fpr%2F1": 200, "/x/resolve/main/f": 200} {
		if status, body, _, _ := w.ask("huggingface", "GET", path, ""); status != want && status != 401 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _, _ := w.ask("openai", "GET", "/v1/models", "", "Upgrade", "websocket", "Connection", "Upgrade"); status != 426 {
		t.Errorf("an upgrade: %d", status)
	}
	if u := w.used(1)[0]; u.Credential != "anthropic" || u.Status != 403 || u.Reason == "" {
		t.Errorf("%+v", u)
	}
}

// What two readers could take for two requests never leaves: there is one, or none.
func TestSmuggling(t *testing.T) {
	w := (&world{}).start(t, "anthropic")
	auth := "Host: x\r\nAuthorization: Bearer " + placeholder + "\r\n"
	for _, raw := range []string{
		"POST /v1/messages HTTP/1.1\r\n" + auth + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"POST /v1/messages HTTP/1.1\r\n" + auth + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"POST /v1/messages HTTP/1.1\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"POST http://other.example/v1/messages HTTP/1.1\r\n" + auth + "Content-Length: 0\r\n\r\n",
		"CONNECT other.example:443 HTTP/1.1\r\n" + auth + "\r\n",
		"GET /v1/models HTTP/1.1\r\n" + auth + "X: " + strings.Repeat("a", maxHeader+8<<10) + "\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		in, out := net.Pipe()
		ended := make(chan struct{})
		go func() { w.b.Serve(context.Background(), "anthropic", nil, out); close(ended) }()
		go func() { _, _ = io.WriteString(in, raw) }()
		r, err := http.ReadResponse(bufio.NewReader(in), nil)
		if err == nil && r.StatusCode < 400 {
			t.Errorf("%.60q: %d", raw, r.StatusCode)
		}
		_ = in.Close()
		<-ended
	}
	if all := w.server.Requests(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestRedirect(t *testing.T) {
	to := ""
	w := (&world{reply: func(models.Request) models.Reply {
		return models.Reply{Status: 302, Header: http.Header{"Location": {to}, "Set-Cookie": {"a=b"}, "Alt-Svc": {"h3"}}}
	}}).start(t, "huggingface")
	for from, want := range map[string]string{
		"https://cdn.example/x?sig=1": "https://cdn.example/x?sig=1", "https://example.com/y?z=1": "/y?z=1", "/z": "/z", "https://example.com:444/y": "https://example.com:444/y",
	} {
		to = from
		status, _, h, err := w.ask("huggingface", "GET", "/x/resolve/main/f", "")
		if status != 302 || err != nil || h.Get("Location") != want || h.Get("Set-Cookie")+h.Get("Alt-Svc") != "" {
			t.Errorf("%s: %d %v %v", from, status, h, err)
		}
	}
	if n := len(w.server.Requests()); n != 4 {
		t.Errorf("%d requests: one was followed", n)
	}
}

// An answer with the key in it is cut before its first byte.
func TestEcho(t *testing.T) {
	var reply models.Reply
	w := (&world{reply: func(models.Request) models.Reply { return reply }}).start(t, "anthropic", "github")
	reply = models.Reply{Raw: "before", Header: http.Header{"X-Debug": {"was " + key + "."}}}
	if status, body, h, _ := w.ask("anthropic", "GET", "/v1/models", ""); status != 502 || strings.Contains(body+fmt.Sprint(h), key) {
		t.Errorf("a header: %d %s", status, body)
	}
	reply = models.Reply{Raw: strings.Repeat("x", 40000) + key}
	_, body, _, err := w.ask("anthropic", "GET", "/v1/models", "")
	if err == nil || strings.Contains(body, key[:3]) {
		t.Errorf("a body: %v, %d bytes", err, len(body))
	}
	reply = models.Reply{Raw: base64.StdEncoding.EncodeToString([]byte("x-access-token:" + key))}
	if _, body, _, err := w.ask("github", "GET", "/o/r/info/refs?service=git-upload-pack", ""); err == nil {
		t.Errorf("a login: %s", body)
	}
	reply = models.Reply{Raw: "packed", Header: http.Header{"Content-Encoding": {"gzip"}}}
	if status, body, _, _ := w.ask("anthropic", "GET", "/v1/models", ""); status != 502 {
		t.Errorf("compressed: %d %s", status, body)
	}
	if all := w.used(4); all[1].Reason != errEcho.Error() {
		t.Errorf("%+v", all)
	}
}

func TestTools(t *testing.T) {
	w := (&world{caps: jobs.Caps{Tools: []string{"web_search"}, Models: []string{"claude-x", "m*"}}}).start(t, "anthropic", "openai", "gemini")
	for _, v := range []struct {
		name, path, body, says string // "" is that it goes through
	}{
		{"anthropic", "/v1/messages", `{"model":"claude-x","tools":[{"type":"web_search_20250305"},{"name":"mine"},{"type":"custom"},{"type":"bash_20250124"}]}`, ""},
		{"anthropic", "/v1/messages", `{"model":"claude-x","tools":[{"type":"web_fetch_20250910"}]}`, "tool web_fetch"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","tools":[{"type":"code_execution_20250825"}]}`, "tool code_execution"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","t\u006fols":[{"type":"mcp_toolset"}]}`, "tool mcp"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","mcp_servers":[{"url":"https://a.example"}]}`, "tool mcp"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","mcp_servers":[],"container":null}`, ""},
		{"anthropic", "/v1/messages", `{"model":"claude-x","container":{"skills":[]}}`, "tool code_execution"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://a.example/secret"}}]}]}`, "tool web_fetch"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","messages":[{"content":[{"type":"tool_use","input":{"source":{"type":"url"}}}]}]}`, ""},
		{"anthropic", "/v1/messages", `{"model":"claude-y"}`, `may ask [claude-x m*]`},
		{"anthropic", "/v1/messages", `{"messages":[]}`, "names no model"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","tools":[],"tools":[{"type":"web_fetch"}]}`, "twice"},
		{"anthropic", "/v1/messages", `{"model":"claude-x","Tools":[]}`, "to some servers"},
		{"anthropic", "/v1/messages", `{"model":"claude-x"} {}`, "no JSON"},
		{"anthropic", "/v1/messages", `[]`, "no JSON object"},
		{"anthropic", "/v1/messages", ``, "no JSON"},
		{"openai", "/v1/chat/completions", `{"model":"m1","tools":[{"type":"function","function":{"parameters":{"type":"object"}}}]}`, ""},
		{"openai", "/v1/chat/completions", `{"model":"m1","messages":[{"content":[{"type":"image_url","image_url":{"url":"https://a.example"}}]}]}`, "tool web_fetch"},
		{"openai", "/v1/chat/completions", `{"model":"m1","messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}]}`, ""},
		{"openai", "/v1/responses", `{"model":"m1","input":[{"content":[{"type":"input_file","file_url":"https://a.example"}]}]}`, "tool web_fetch"},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"web_search_preview"}]}`, ""},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"code_interpreter"}]}`, "tool code_execution"},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"file_search"}]}`, "tool file_search"},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"computer_use_preview"}]}`, "tool computer_use"},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"mcp","server_url":"https://a.example"}]}`, "tool mcp"},
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}`, "tool mcp"},
		{"openai", "/v1/responses", `{"model":"m1","prompt":{"id":"p"}}`, "tool stored_prompt"},
		{"openai", "/v1/responses", `{"model":"m1","background":true}`, "background"},
		{"openai", "/v1/chat/completions", `{"model":"m1","models":["m2","other"]}`, `may ask`},
		{"openai", "/v1/chat/completions", `{"model":"m1","plugins":[{"id":"file-parser"}]}`, "tool file-parser"},
		{"gemini", "/v1beta/models/m:generateContent", `{"tools":[{"functionDeclarations":[]},{"google_search":{}}]}`, ""},
		{"gemini", "/v1beta/models/m:generateContent", `{"tools":[{"urlContext":{}}]}`, "tool web_fetch"},
		{"gemini", "/v1beta/models/m:generateContent", `{"tools":{"code_execution":{}}}`, "tool code_execution"},
		{"gemini", "/v1beta/models/m:generateContent", `{"cachedContent":"x"}`, "tool cached_content"},
		{"gemini", "/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"fileData":{"fileUri":"https://a.example"}}]}]}`, "tool web_fetch"},
		{"gemini", "/v1beta/models/gem:streamGenerateContent", `{}`, "may ask"},
		// What is counted for nothing is read as well.
		{"anthropic", "/v1/messages/count_tokens", `{"model":"claude-x","messages":[]}`, ""},
		{"anthropic", "/v1/messages/count_tokens", `{"model":"claude-x","messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://a.example/secret"}}]}]}`, "tool web_fetch"},
		{"gemini", "/v1beta/models/m:countTokens", `{"tools":[{"urlContext":{}}]}`, "tool web_fetch"},
		{"gemini", "/v1beta/models/m:batchGenerateContent", `{"batch":{}}`, "could be counted"},
		// Names without end.
		{"openai", "/v1/responses", `{"model":"m1","tools":[{"type":"` + strings.Repeat("x", 10_000) + `"}]}`, "more than 200 bytes"},
		{"gemini", "/v1beta/models/m:generateContent", `{"tools":[{` + many(`"t%d":1`, 1000) + `}]}`, "more than 32 models"},
		{"openai", "/v1/responses", `{"model":"m1","Tools":1,"a":[` + many("%d", 200_000) + `]}`, "to some servers"},
		{"openai", "/v1/responses", `{"model":"m1","a":{` + many(`"%d":1`, 200_000) + `}}`, "more than 100000 names"},
	} {
		status, body, _, err := w.ask(v.name, "POST", v.path, v.body)
		if (status == 200) != (v.says == "") || err != nil || !strings.Contains(body, v.says) {
			t.Errorf("%s %.300s: %d %.300s %v", v.name, v.body, status, body, err)
		}
	}
	if status, body, _, _ := w.ask("anthropic", "POST", "/v1/messages", hello, "Content-Encoding", "zstd"); status != 403 {
		t.Errorf("compressed: %d %s", status, body)
	}
	if status, body, _, _ := w.ask("anthropic", "POST", "/v1/messages", `{"a":"`+strings.Repeat("x", maxBody)+`"}`); status != 413 {
		t.Errorf("large: %d %.100s", status, body)
	}
}

// many is a list of n things, each of which is made of its number.
func many(form string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(form, i)
	}
	return strings.Join(all, ",")
}

// TestLeft: a request whose program does not wait for the answer is counted by what it asked.
func TestLeft(t *testing.T) {
	came, go_ := make(chan bool, 1), make(chan bool)
	w := &world{reply: func(models.Request) models.Reply { came <- true; <-go_; return models.Reply{} }}
	w.start(t, "anthropic")
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-came; leave() }()
	r, _ := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1:4001/v1/messages", strings.NewReader(`{"model":"m","messages":[{"content":"`+strings.Repeat("x", 4000)+`"}]}`))
	r.Header.Set("X-Api-Key", placeholder)
	if res, err := w.client("anthropic", nil).Do(r); err == nil {
		_ = res.Body.Close()
		t.Fatal("there was an answer")
	}
	u := w.used(1)[0]
	close(go_)
	if all := w.b.Usage(); u.Usage.Requests != 1 || all.Requests != 1 || all.Input < 900 {
		t.Errorf("%+v, %+v", u, all)
	}
}

// TestBackoff: a server does not say how long its connection is held.
func TestBackoff(t *testing.T) {
	r := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"86400"}}}
	if d := backoff(time.Millisecond, 4*time.Second, 0, r); d != 4*time.Second {
		t.Error(d)
	}
}

// Bytes of a stream come before the next ones are sent.
func TestStream(t *testing.T) {
	step := make(chan struct{})
	w := (&world{reply: func(models.Request) models.Reply {
		return models.Reply{Text: "one two", In: 7, Cached: 2, Out: 2, Between: func() { <-step }}
	}}).start(t, "anthropic")
	r, _ := http.NewRequest("POST", "http://127.0.0.1/v1/messages", strings.NewReader(`{"model":"m","stream":true}`))
	r.Header.Set("x-api-key", placeholder)
	res, err := w.client("anthropic", nil).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in, events := bufio.NewScanner(res.Body), 0
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "data:") {
			events++
			step <- struct{}{}
		}
	}
	if events != 7 || in.Err() != nil {
		t.Errorf("%d events, %v", events, in.Err())
	}
	w.used(1)
	if u := w.b.Usage(); u.Input != 5 || u.CacheRead != 2 || u.Output != 2 || u.Estimated || u.Requests != 1 {
		t.Errorf("%+v", u)
	}
}

func TestCounts(t *testing.T) {
	var reply models.Reply
	w := (&world{reply: func(models.Request) models.Reply { return reply }}).start(t, "anthropic", "openai", "gemini")
	last := jobs.Usage{}
	for _, v := range []struct {
		name, path, body string
		silent           bool
		in, cached, out  int64
	}{
		{"anthropic", "/v1/messages", hello, false, 6, 4, 5},
		{"openai", "/v1/chat/completions", hello, false, 6, 4, 5},
		{"openai", "/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, false, 6, 4, 5},
		{"openai", "/v1/responses", hello, false, 6, 4, 5},
		{"openai", "/v1/responses", `{"model":"m","stream":true}`, false, 6, 4, 5},
		{"gemini", "/v1beta/models/g:generateContent", `{}`, false, 6, 4, 5},
		{"gemini", "/v1beta/models/g:streamGenerateContent?alt=sse", `{}`, false, 6, 4, 5},
		{"gemini", "/v1beta/models/g:streamGenerateContent", `{}`, false, 6, 4, 5},
		// Those that do not say it are estimated: 32 bytes are 8 tokens.
		{"openai", "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"content":"` + strings.Repeat("x", 31) + `"}]}`, false, 8, 0, 8},
		{"anthropic", "/v1/messages", `{"model":"m","stream":true,"messages":[{"content":"` + strings.Repeat("x", 31) + `"}]}`, true, 8, 0, 8},
		{"anthropic", "/v1/messages/count_tokens", hello, false, 0, 0, 0},
	} {
		reply = models.Reply{Text: "one two three four five six 1234", In: 10, Cached: 4, Out: 5, NoUsage: v.silent}
		before := len(w.used(0))
		if status, body, _, err := w.ask(v.name, "POST", v.path, v.body); status != 200 || err != nil {
			t.Fatalf("%s: %d %s %v", v.path, status, body, err)
		}
		w.used(before + 1)
		u := w.b.Usage()
		if u.Input-last.Input != v.in || u.CacheRead-last.CacheRead != v.cached || u.Output-last.Output != v.out {
			t.Errorf("%s %s: %+v after %+v", v.path, v.body, u, last)
		}
		last = u
	}
	if !last.Estimated || last.Requests != 10 {
		t.Errorf("%+v", last)
	}
}

func TestCaps(t *testing.T) {
	prices := jobs.Prices{Date: "2026-11-01", Models: []jobs.Price{{Model: "claude-*", Input: 1e5, Output: 1e5}}} // 0.10 USD a token
	for _, v := range []struct {
		caps   jobs.Caps
		passed int
		says   string
	}{
		{jobs.Caps{Requests: 2}, 2, "cap max_requests met: 2 of 2 requests, 26 tokens, 2.60 USD"},
		{jobs.Caps{Tokens: 26}, 2, "cap max_tokens met: 26 of 26 tokens, 2 requests, 2.60 USD"},
		{jobs.Caps{Tokens: 20}, 2, "cap max_tokens met: 26 of 20 tokens, 2 requests, 2.60 USD"},
		{jobs.Caps{USD: 1.31}, 2, "cap max_usd met: 2.60 of 1.31 USD, 2 requests, 26 tokens"},
	} {
		w := (&world{caps: v.caps, prices: prices}).start(t, "anthropic")
		n := 0
		for ; n < 5; n++ {
			status, body, h, err := w.ask("anthropic", "POST", "/v1/messages", hello)
			if status == 429 && strings.Contains(body, v.says) && strings.Contains(body, "rate_limit_error") && h.Get("X-Should-Retry") == "false" {
				break
			}
			if status != 200 || err != nil {
				t.Errorf("%+v: %d %s %v", v.caps, status, body, err)
			}
			w.used(n + 1)
		}
		if m := w.met(); n != v.passed || m.Reason != v.says {
			t.Errorf("%+v: %d requests, %+v", v.caps, n, m)
		}
		if _, _, _, err := w.ask("anthropic", "GET", "/v1/models", ""); err != nil || len(w.stop) > 0 {
			t.Errorf("%+v: stopped again, or what is free, too: %v", v.caps, err)
		}
	}
}

// The last request that is allowed has its answer: another one that comes meanwhile is to
// be asked again, and ends nothing.
func TestCapsLastRequest(t *testing.T) {
	asked, release := make(chan struct{}, 1), make(chan struct{})
	w := (&world{caps: jobs.Caps{Requests: 1}, reply: func(models.Request) models.Reply {
		asked <- struct{}{}
		<-release
		return models.Reply{Text: "hello", In: 10, Out: 3}
	}}).start(t, "anthropic")
	last := make(chan int, 1)
	go func() {
		status, _, _, _ := w.ask("anthropic", "POST", "/v1/messages", hello)
		last <- status
	}()
	<-asked
	if status, body, _, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 503 || !strings.Contains(body, "under way may take all that max_requests leaves") || err != nil {
		t.Errorf("while it is under way: %d %s %v", status, body, err)
	}
	if len(w.stop) > 0 {
		t.Error("its task is ended")
	}
	close(release)
	if status := <-last; status != 200 {
		t.Errorf("the last one: %d", status)
	}
	w.used(2)
	if status, _, _, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 429 || w.met().Cap != jobs.CapRequests || err != nil {
		t.Errorf("after it: %d %v", status, err)
	}
}

// What the prompts of requests under way may cost holds others back for as long as it is
// a guess, and ends nothing: the answers may say that nearly all came from a cache.
func TestCapsGuess(t *testing.T) {
	var wait atomic.Bool
	wait.Store(true)
	asked, release := make(chan struct{}, 3), make(chan struct{})
	prices := jobs.Prices{Date: "2026-11-01", Models: []jobs.Price{{Model: "claude-*", Input: 1, CacheRead: 0.01, Output: 1}}}
	w := (&world{caps: jobs.Caps{USD: 0.3}, prices: prices, reply: func(models.Request) models.Reply {
		if wait.Load() {
			asked <- struct{}{}
			<-release
		}
		return models.Reply{Text: "hello", In: 200_001, Cached: 200_000, Out: 3}
	}}).start(t, "anthropic")
	long := strings.Replace(hello, "hello", strings.Repeat("x", 800_000), 1)
	type answer struct {
		status int
		err    error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			status, _, _, err := w.ask("anthropic", "POST", "/v1/messages", long)
			answers <- answer{status, err}
		}()
		<-asked
	}
	if status, body, h, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 503 || !strings.Contains(body, "under way may take all that max_usd leaves") || h.Get("X-Should-Retry") != "" || err != nil {
		t.Errorf("%d %s %v %v", status, body, h, err)
	}
	if u := w.b.Told(); u.USD != 0 || u.Input != 0 || u.Requests != 2 {
		t.Errorf("told while they are under way: %+v", u)
	}
	wait.Store(false)
	close(release)
	for range 2 {
		if a := <-answers; a.status != 200 || a.err != nil {
			t.Errorf("%+v", a)
		}
	}
	w.used(2)
	if status, body, _, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 200 || err != nil || len(w.stop) > 0 {
		t.Errorf("when they have their answers: %d %s %v", status, body, err)
	}
}

// What earlier attempts have used counts for the caps, and is no part of this one's usage.
func TestCapsBefore(t *testing.T) {
	w := (&world{caps: jobs.Caps{Requests: 3}, before: jobs.Usage{Requests: 2, Input: 100}}).start(t, "anthropic")
	if status, body, _, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 200 || err != nil {
		t.Fatalf("%d %s %v", status, body, err)
	}
	w.used(1)
	const says = "cap max_requests met: 3 of 3 requests, 113 tokens, with what earlier attempts of the job have used"
	if status, body, _, err := w.ask("anthropic", "POST", "/v1/messages", hello); status != 429 || !strings.Contains(body, says) || err != nil {
		t.Errorf("%d %s %v", status, body, err)
	}
	if u := w.b.Usage(); u.Requests != 1 || u.Tokens() != 13 || w.met().Reason != says {
		t.Errorf("%+v", u)
	}
}

// kept is a file of counts that may fail.
type kept struct {
	mu    sync.Mutex
	last  jobs.Usage
	tries int
	err   error
}

func (k *kept) keep(u jobs.Usage) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tries++; k.err == nil {
		k.last = u
	}
	return k.err
}

func (k *kept) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *kept) seen() (jobs.Usage, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.tries
}

// While there are caps, a request is counted durably before its server sees it, and where
// that fails it is refused and counts nothing. Without caps it is carried all the same.
func TestKept(t *testing.T) {
	k := &kept{}
	asked := 0
	w := (&world{caps: jobs.Caps{Requests: 3}, keep: k.keep, reply: func(models.Request) models.Reply {
		if asked++; asked == 1 {
			if u, _ := k.seen(); u.Requests != 1 || u.Tokens() == 0 {
				t.Errorf("the server was asked, and kept is %+v", u)
			}
		}
		return models.Reply{Text: "hello", In: 10, Out: 3}
	}}).start(t, "anthropic")
	ask := func() (int, string) {
		t.Helper()
		status, body, h, err := w.ask("anthropic", "POST", "/v1/messages", hello)
		if err != nil || status == 503 && h.Get("X-Should-Retry") != "" {
			t.Errorf("%v %v", h, err)
		}
		return status, body
	}
	if status, body := ask(); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	before := w.used(1)
	k.fail(errors.New("no space left on device"))
	_, tries := k.seen()
	for range 2 {
		if status, body := ask(); status != 503 || !strings.Contains(body, "overloaded_error") ||
			!strings.Contains(body, "requests cannot be counted durably") {
			t.Errorf("%d %s", status, body)
		}
	}
	if _, now := k.seen(); now < tries+keepTries {
		t.Errorf("it was tried %d times", now-tries)
	}
	if u := w.b.Usage(); asked != 1 || u.Requests != 1 || u.Refused != 2 || len(w.unkept) != 1 || len(before) != 1 {
		t.Errorf("asked %d, told %d: %+v", asked, len(w.unkept), u)
	}
	k.fail(nil)
	if status, body := ask(); status != 200 {
		t.Errorf("when it can be written again: %d %s", status, body)
	}
	w.used(4)
	w.b.Close()
	if u, n := k.seen(); u.Requests != 2 || u.Tokens() != 26 {
		t.Errorf("at the end %+v is kept", u)
	} else if err := w.b.meter.kept.begin(true).wait(t.Context()); err == nil {
		t.Error("it writes when it is closed")
	} else if _, m := k.seen(); m != n {
		t.Error("it has written when it was closed")
	}

	k = &kept{err: errors.New("no space left on device")}
	w = (&world{keep: k.keep}).start(t, "anthropic")
	if status, body := ask(); status != 200 {
		t.Errorf("without caps: %d %s", status, body)
	}
}

// A stream ends where it exceeds a cap.
func TestCapInStream(t *testing.T) {
	w := (&world{caps: jobs.Caps{Tokens: 15}, reply: func(models.Request) models.Reply {
		return models.Reply{Text: strings.Repeat("word ", 1000), In: 10, Out: 1000}
	}}).start(t, "anthropic")
	_, body, _, err := w.ask("anthropic", "POST", "/v1/messages", `{"model":"m","stream":true}`)
	if err == nil || strings.Count(body, "text_delta") > 100 {
		t.Errorf("%v, %d pieces", err, strings.Count(body, "text_delta"))
	}
	if m := w.met(); m.Cap != jobs.CapTokens || !strings.HasPrefix(m.Reason, "cap max_tokens met: 1") {
		t.Errorf("%+v", m)
	}
}

// Each account is held to the caps by itself, whatever connections it has, and all are counted together.
func TestAccounts(t *testing.T) {
	prices := jobs.Prices{Models: []jobs.Price{{Model: "*", Input: 1e5, Output: 1e5}}} // 0.10 USD a token
	for _, v := range []struct {
		caps jobs.Caps
		says string
	}{
		{jobs.Caps{Requests: 2}, "cap max_requests met: 2 of 2 requests, 26 tokens, 2.60 USD"},
		{jobs.Caps{Tokens: 20}, "cap max_tokens met: 26 of 20 tokens, 2 requests, 2.60 USD"},
		{jobs.Caps{USD: 1.31}, "cap max_usd met: 2.60 of 1.31 USD, 2 requests, 26 tokens"},
	} {
		var kept atomic.Int64
		w := (&world{caps: v.caps, prices: prices, keep: func(u jobs.Usage) error { kept.Store(int64(u.Requests)); return nil }}).start(t, "anthropic", "openai")
		one, two := &Account{}, &Account{}
		n := 0
		for _, ask := range []struct {
			of   *Account
			name string
			path string
			want int
		}{
			{one, "anthropic", "/v1/messages", 200}, {two, "anthropic", "/v1/messages", 200}, {one, "openai", "/v1/responses", 200},
			{one, "anthropic", "/v1/messages", 429}, {one, "openai", "/v1/responses", 429}, {two, "openai", "/v1/responses", 200},
			{two, "anthropic", "/v1/messages", 429}, {&Account{}, "anthropic", "/v1/messages", 200},
		} {
			status, body, _, err := w.askOf(ask.of, ask.name, "POST", ask.path, hello)
			if status != ask.want || err != nil || status == 429 && !strings.Contains(body, v.says) {
				t.Errorf("%+v: request %d: %d %s %v", v.caps, n, status, body, err)
			}
			n++
			w.used(n)
		}
		if u := w.b.Usage(); u.Requests != 5 || u.Refused != 3 || u.Input != 50 || u.Output != 15 || len(w.stop) > 0 {
			t.Errorf("%+v: %+v, stopped %d times", v.caps, u, len(w.stop))
		}
		if status, body, _, _ := w.ask("anthropic", "POST", "/v1/messages", hello); status != 429 {
			t.Errorf("%+v: without an account, where all of them have reached the cap: %d %s", v.caps, status, body)
		}
		if w.b.Close(); kept.Load() != 5 {
			t.Errorf("%+v: %d requests are kept", v.caps, kept.Load())
		}
	}
}

// A stream ends at the cap of its account, and others of the same broker go on.
func TestAccountInStream(t *testing.T) {
	w := (&world{caps: jobs.Caps{Tokens: 15}, reply: func(models.Request) models.Reply {
		return models.Reply{Text: strings.Repeat("word ", 1000), In: 10, Out: 1000}
	}}).start(t, "anthropic")
	for range 2 {
		_, body, _, err := w.askOf(&Account{}, "anthropic", "POST", "/v1/messages", `{"model":"m","stream":true}`)
		if pieces := strings.Count(body, "text_delta"); err == nil || pieces == 0 || pieces > 100 {
			t.Errorf("%v, %d pieces", err, pieces)
		}
	}
	w.used(2)
	if u := w.b.Usage(); u.Requests != 2 || len(w.stop) > 0 {
		t.Errorf("%+v, stopped %d times", u, len(w.stop))
	}
}

func TestUnpriced(t *testing.T) {
	w := (&world{caps: jobs.Caps{USD: 5}, prices: jobs.Prices{Models: []jobs.Price{{Model: "gpt-9", Input: 1, Output: 1}}}}).start(t, "anthropic", "openai")
	if status, body, _, _ := w.ask("anthropic", "POST", "/v1/messages", hello); status != 403 || !strings.Contains(body, "has no price") {
		t.Errorf("%d %s", status, body)
	}
	w.change = nil
	if status, body, _, _ := w.ask("openai", "POST", "/v1/responses/x/cancel", hello); status != 403 {
		t.Errorf("%d %s", status, body)
	}
}

// What failed costs nothing, and what is safe is asked again.
func TestAgain(t *testing.T) {
	n := 0
	w := (&world{reply: func(r models.Request) models.Reply {
		if n++; n < 3 || r.Method == "POST" {
			return models.Reply{Status: 503, Raw: "busy"}
		}
		return models.Reply{Text: "x"}
	}}).start(t, "anthropic")
	for _, c := range w.b.list {
		c.again.RetryWaitMin, c.again.RetryWaitMax = 1, 1
	}
	if status, _, _, err := w.ask("anthropic", "GET", "/v1/models", ""); status != 200 || n != 3 {
		t.Errorf("%d %v after %d", status, err, n)
	}
	if status, body, _, _ := w.ask("anthropic", "POST", "/v1/messages", hello); status != 503 || body != "busy" || n != 4 {
		t.Errorf("%d %s after %d", status, body, n)
	}
	w.used(2)
	if u := w.b.Usage(); u.Requests != 0 || u.Tokens() != 0 {
		t.Errorf("%+v", u)
	}
}

// A program that leaves before it has its answer is not what ends the count while there is
// a cap of tokens: the server goes on, and is paid.
func TestLeftIsCounted(t *testing.T) {
	for _, v := range []struct {
		caps jobs.Caps
		body string
		out  int64
	}{
		{jobs.Caps{Tokens: 1000}, hello, 300},
		{jobs.Caps{Tokens: 1000}, strings.Replace(hello, "{", `{"stream":true,`, 1), 300},
		{jobs.Caps{USD: 1000}, hello, 300},
		{jobs.Caps{Requests: 1000}, hello, 0},
	} {
		asked, release := make(chan struct{}), make(chan struct{})
		w := (&world{caps: v.caps, prices: jobs.Prices{Models: []jobs.Price{{Model: "claude-*", Input: 1, Output: 1}}}, reply: func(models.Request) models.Reply {
			close(asked)
			<-release
			return models.Reply{Text: strings.Repeat("word ", 300), In: 10, Out: 300}
		}}).start(t, "anthropic")
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:4001/v1/messages", strings.NewReader(v.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+placeholder)
		go func() { <-asked; cancel() }()
		if res, err := w.client("anthropic", nil).Do(r); err == nil {
			_ = res.Body.Close()
			t.Fatal("it has not left")
		}
		time.Sleep(50 * time.Millisecond) // until the broker has seen it
		close(release)
		w.used(1)
		if u := w.b.Usage(); u.Output != v.out || u.Requests != 1 {
			t.Errorf("%+v: %+v", v.caps, u)
		}
	}
}

func TestUnreached(t *testing.T) {
	w := (&world{dial: func(_ context.Context, host string, port uint16) (net.Conn, error) {
		return nil, fmt.Errorf("%s:%d is refused by the site", host, port)
	}}).start(t, "openai")
	status, body, _, err := w.ask("openai", "POST", "/v1/responses", hello)
	if status != 502 || err != nil || !strings.Contains(body, "example.com:443 is refused by the site") || !strings.Contains(body, `"server_error"`) {
		t.Errorf("%d %s %v", status, body, err)
	}
}

func TestServe(t *testing.T) {
	w := (&world{}).start(t, "openai")
	in, out := net.Pipe()
	w.b.Serve(context.Background(), "other", nil, out)
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("of another name: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	in, out = net.Pipe()
	ended := make(chan struct{})
	go func() { w.b.Serve(ctx, "openai", nil, out); close(ended) }()
	cancel()
	<-ended
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("of an attempt that has ended: %v", err)
	}
	for _, change := range []func(*Credential){
		func(c *Credential) { c.Key = "short" }, func(c *Credential) { c.Key += "\n" }, func(c *Credential) { c.Placeholder = "" }, func(c *Credential) { c.Upstream = "http://x" },
	} {
		c := w.b.list["openai"].Credential
		change(&c)
		if _, err := New(Options{Credentials: []Credential{c}}); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%+v: %v", c.Credential, err)
		}
	}
}
