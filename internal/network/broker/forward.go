package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"berth/internal/network/credentials"
	"berth/internal/network/judge"
	"berth/jobs"
)

// forward is one request on its way.
type forward struct {
	b   *Broker
	c   *credential
	of  *tally // that is held to the caps
	key *held  // nil is that it is not here yet
	r   *http.Request
	use *credentials.Use

	query url.Values
	path  string // below the upstream
	body  io.Reader
	size  int64
	ask   *asked  // of a request to a model
	fly   *flight // likewise
	large bool
	lasts bool // when its program has left
}

// run judges it, sends it and passes the answer on. A refusal is for the program; after
// another error a part of the answer has left.
func (f *forward) run(w http.ResponseWriter) error {
	select {
	case f.b.flights <- struct{}{}:
		defer func() { <-f.b.flights }()
	case <-f.r.Context().Done():
		return f.r.Context().Err()
	}
	defer f.small()
	if err := f.judge(w); err != nil {
		return err
	}
	ctx, cancel := f.lasting()
	defer cancel()
	out, err := f.request(ctx)
	if err != nil {
		return &refusal{status: 400, why: "the request cannot be passed on"}
	}
	answered := false
	var sent atomic.Bool // set by the connection's own goroutine
	out = out.WithContext(httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) }}))
	count := &counter{api: f.c.API}
	if f.ask != nil {
		if f.fly, err = f.b.meter.begin(f.r.Context(), f.ask, f.of); err != nil {
			return err
		}
		defer func() {
			u := count.end(f.fly.input)
			charged := answered || sent.Load() && f.use.Status == 0 // whoever has left did not hear what it cost
			f.fly.end(u, charged)
			if f.use.Usage = f.fly.counted; charged {
				f.use.Usage.Requests = 1
			}
		}()
	}
	answer, err := f.c.send(out)
	f.small()
	if err != nil {
		return f.unreached(err)
	}
	defer func() { _ = answer.Body.Close() }()
	answered, f.use.Status = answer.StatusCode < 300, answer.StatusCode
	return f.pass(w, answer, count)
}

// lasting is the context of the request to the server. While there are caps of tokens or
// dollars, one to a model outlasts its program: the server goes on, and is paid, so its
// answer is read to the end for the counts.
func (f *forward) lasting() (context.Context, context.CancelFunc) {
	caps := &f.b.o.Caps
	if f.lasts = f.ask != nil && (caps.Tokens > 0 || caps.USD > 0); !f.lasts {
		return context.WithCancel(f.r.Context())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.r.Context()))
	stop := context.AfterFunc(f.r.Context(), func() {
		late := time.NewTimer(leftTime)
		defer late.Stop()
		select {
		case <-late.C:
		case <-f.b.over:
		case <-ctx.Done():
		}
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// small gives back what a large body has taken.
func (f *forward) small() {
	if f.large {
		f.large = false
		f.body = nil
		<-f.b.large
	}
}

func (f *forward) unreached(err error) error {
	if f.r.Context().Err() != nil {
		return f.r.Context().Err()
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the address
	}
	var no *judge.RefusedError
	switch {
	case errors.As(err, &no) && no.NoWay:
		return &refusal{status: 503, why: f.c.upstream.Host + " cannot be reached", hint: no.Error()}
	case errors.As(err, &no):
		return &refusal{status: 403, why: f.c.upstream.Host + ", the server of the credential " + f.c.Name + ", is refused", hint: no.Hint}
	}
	if scan := (&scanner{keys: f.key.secret}); scan.has(err.Error()) {
		err = errEcho // it has words of the server's
	}
	return &refusal{status: 502, why: f.c.upstream.Host + " cannot be reached: " + err.Error()}
}

// judge decides whether a request may be sent, and reads the body of one to a model.
func (f *forward) judge(w http.ResponseWriter) error {
	r, c := f.r, f.c
	var err error
	switch f.query, err = url.ParseQuery(r.URL.RawQuery); {
	case err != nil:
		return &refusal{status: 400, why: "the address has a query that cannot be read"}
	case !c.authentic(r, f.query):
		env := "the placeholder of the credential " + c.Name
		if len(c.KeyEnv) > 0 {
			env = "the value of $" + c.KeyEnv[0]
		}
		return &refusal{status: 401, why: "the request does not have " + env + ", which stands for the key",
			hint: "a key of one's own goes to the vendor's address, and not here"}
	case f.key == nil:
		return &refusal{status: 503, why: "the key of the credential " + c.Name + " is not here yet",
			hint: "berth exec in this environment hands it over"}
	case r.Header.Get("Upgrade") != "":
		return &refusal{status: http.StatusUpgradeRequired, why: "only HTTP/1.1 without upgrades is carried"}
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength != 0:
		return &refusal{status: 400, why: "a " + r.Method + " with a body"}
	case !strings.HasPrefix(r.URL.Path, "/") || r.URL.Host != "" || r.URL.Scheme != "" || r.URL.User != nil || r.URL.Opaque != "":
		return &refusal{status: 400, why: "the request is not for a path of this server"}
	}
	below, ok := strings.CutPrefix(r.URL.Path, c.upstream.Path)
	if !ok || below != "" && below[0] != '/' || !f.plain() {
		return &refusal{status: 403, why: "the path " + shown(r.URL.Path) + " is not below " + c.Upstream,
			hint: "is the base URL the one of the environment, " + c.upstream.Path + "?"}
	}
	f.path = below
	escaped := strings.TrimPrefix(r.URL.EscapedPath(), c.upstream.Path)
	if !credentials.Allows(&c.Credential.Credential, r.Method, below) || !credentials.Allows(&c.Credential.Credential, r.Method, escaped) {
		return &refusal{status: 403, why: r.Method + " " + shown(below) + " is not allowed by the credential " + c.Name,
			hint: "[credentials." + c.Name + "] methods and paths in the configuration say what is"}
	}
	for _, name := range keyQueries {
		f.query.Del(name)
	}
	if c.Model() { // these would leave out of answers what they have used
		f.query.Del("fields")
		f.query.Del("$fields")
	}
	f.body, f.size = r.Body, r.ContentLength
	return f.operation(w)
}

// plain refuses paths that a server may read as other ones.
func (f *forward) plain() bool {
	p, escaped := f.r.URL.Path, f.r.URL.EscapedPath()
	if !credentials.Plain(p) || strings.ContainsAny(p, "\\;") || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	if f.c.API != "" && strings.Contains(escaped, "%") {
		return false // no path of these has a reason for it
	}
	return !strings.Contains(strings.ToLower(escaped), "%25")
}

// shown is a path as it may stand in an answer, and in a log.
func shown(path string) string {
	path = url.PathEscape(path[:min(len(path), 100)])
	return strings.ReplaceAll(path, "%2F", "/")
}

// operation reads what the request does.
func (f *forward) operation(w http.ResponseWriter) error {
	switch f.c.API {
	case "":
		return nil
	case jobs.APIGit:
		return f.git()
	}
	model, free := f.model()
	read := f.r.Method == http.MethodGet || f.r.Method == http.MethodHead
	switch caps := &f.b.o.Caps; {
	case free && read:
		return nil
	case model == "" && !free && (caps.Any() || len(caps.Models) > 0):
		return &refusal{status: 403, why: f.r.Method + " " + shown(f.path) + " is no request that could be counted, and the task has caps"}
	case model == "" && !free && read:
		return nil
	case model == "" && !free:
		return &refusal{status: 403, why: f.r.Method + " " + shown(f.path) +
			" is no request to a model that can be judged: it could name the vendor's own tools",
			hint: "a credential of your own without like carries what is not read"}
	}
	if enc := f.r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &refusal{status: 403, why: "the body is compressed, and could not be judged", hint: "turn the compression of requests off"}
	}
	body, err := f.read(w)
	if err != nil {
		return err
	}
	a, err := ask(f.c.API, body)
	if err != nil {
		return &refusal{status: 400, why: err.Error(), hint: "a request to a model has to be one JSON object"}
	}
	if f.c.API == jobs.APIGemini {
		a.models = []string{model}
	}
	if f.body, f.size = bytes.NewReader(body), int64(len(body)); free {
		return f.b.meter.mayUse(a)
	}
	f.ask = a
	if len(a.models) > 0 {
		f.use.Model = a.models[0][:min(len(a.models[0]), 100)]
	}
	return nil
}

// model tells a request to a model, and what is free: lists, and counts of tokens.
func (f *forward) model() (model string, free bool) {
	read := f.r.Method == http.MethodGet || f.r.Method == http.MethodHead
	last := f.path[strings.LastIndexByte(f.path, '/')+1:]
	if read {
		return "", strings.Contains(f.path+"/", "/models/")
	}
	if f.c.API == jobs.APIGemini {
		name, verb, _ := strings.Cut(last, ":")
		switch verb {
		case "generateContent", "streamGenerateContent", "embedContent", "batchEmbedContents":
			return name, false
		}
		if verb == "countTokens" {
			return name, true
		}
		return "", false
	}
	switch {
	case last == "count_tokens", strings.HasSuffix(f.path, "/responses/input_tokens"):
		return "", true
	case f.c.API == jobs.APIAnthropic && last == "messages",
		f.c.API == jobs.APIOpenAI &&
			(strings.HasSuffix(f.path, "/chat/completions") || last == "completions" || last == "responses" || last == "embeddings" ||
				strings.HasSuffix(f.path, "/responses/compact")):
		return "body", false
	}
	return "", false
}

// git lets through what a fetch needs.
func (f *forward) git() error {
	switch {
	case f.r.Method == http.MethodGet && strings.HasSuffix(f.path, "/info/refs") && f.query.Encode() == "service=git-upload-pack",
		f.r.Method == http.MethodPost && strings.HasSuffix(f.path, "/git-upload-pack") && len(f.query) == 0:
		return nil
	case strings.HasSuffix(f.path, "/git-receive-pack") || f.query.Get("service") == "git-receive-pack":
		return &refusal{status: 403, why: "a task cannot push with the credential " + f.c.Name,
			hint: "its changes come back as a branch, which you push"}
	}
	return &refusal{status: 403, why: f.r.Method + " " + shown(f.path) + " is no fetch of git's"}
}

// read reads a whole body. Of large ones there are two at a time, so that they hold
// little memory.
func (f *forward) read(w http.ResponseWriter) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(idleTime))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	in := http.MaxBytesReader(w, f.r.Body, maxBody)
	var b bytes.Buffer
	if _, err := io.CopyN(&b, in, largeBody); err == nil {
		select {
		case f.b.large <- struct{}{}:
			f.large = true
		case <-f.r.Context().Done():
			return nil, f.r.Context().Err()
		}
		_, err = io.Copy(&b, in)
		var most *http.MaxBytesError
		switch {
		case errors.As(err, &most):
			return nil, &refusal{status: 413, why: "the body has more than 32 MiB"}
		case err != nil:
			return nil, err
		}
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b.Bytes(), nil
}

// request is what the server gets.
func (f *forward) request(ctx context.Context) (*http.Request, error) {
	u := *f.r.URL
	u.Scheme, u.Host, u.RawQuery, u.ForceQuery = f.c.upstream.Scheme, f.c.upstream.Host, f.query.Encode(), false
	if f.size == 0 {
		f.body = nil
	}
	out, err := http.NewRequestWithContext(ctx, f.r.Method, u.String(), f.body)
	if err != nil {
		return nil, err
	}
	out.ContentLength = f.size
	out.Header = passed(f.r.Header, keyHeaders, requestHeaders)
	if out.Header["Accept-Encoding"] = []string{"identity"}; f.c.API != "" {
		out.Header.Del("Range") // a key that is echoed in two parts is not seen
	}
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", "berth")
	}
	out.Header.Set(f.key.header, f.key.value)
	return out, nil
}

// errEcho ends a connection on which the key was about to leave.
var errEcho = errors.New("the answer has the key in it, and was cut")

// pass passes an answer on.
func (f *forward) pass(w http.ResponseWriter, answer *http.Response, count *counter) error {
	scan := &scanner{keys: f.key.secret}
	encoding := strings.Join(answer.Header.Values("Content-Encoding"), ", ")
	head := passed(answer.Header, answerHeaders)
	f.relocate(head)
	for name, values := range head {
		if scan.has(name) || scan.has(strings.Join(values, "\n")) {
			return &refusal{status: 502, why: errEcho.Error()}
		}
	}
	switch {
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return &refusal{status: 502, why: "the answer is compressed, which was not asked for: it could not be looked through"}
	case answer.StatusCode < 200:
		return &refusal{status: 502, why: "the server changed the protocol"}
	}
	for name, values := range head {
		w.Header()[name] = values
	}
	f.use.Status = answer.StatusCode
	w.WriteHeader(answer.StatusCode)
	flush := http.NewResponseController(w)
	count.events = strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
	if count.events {
		_ = flush.Flush()
	}
	buf := make([]byte, 16<<10)
	var left error // its program has
	for {
		n, err := answer.Body.Read(buf)
		if n > 0 {
			if f.fly != nil {
				count.write(buf[:n])
			}
			out, clean := scan.next(buf[:n])
			if !clean {
				return errEcho
			}
			if left == nil {
				_ = flush.SetWriteDeadline(time.Now().Add(idleTime))
				if _, left = w.Write(out); left == nil {
					_ = flush.Flush()
				} else if !f.lasts {
					return left
				}
			}
			if f.fly != nil {
				f.fly.count(count.now(f.fly.input), count.told())
				if err == nil && count.events && f.fly.exceeds() {
					return errors.New("a cap is exceeded")
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF) && left != nil:
			return left
		case errors.Is(err, io.EOF):
			_, err = w.Write(scan.rest())
			return err
		case err != nil:
			return errors.New("the server's answer broke off")
		}
	}
}

// relocate makes a redirect on the same server one of this side's.
func (f *forward) relocate(head http.Header) {
	u, err := url.Parse(head.Get("Location"))
	if err == nil && u.Scheme == f.c.upstream.Scheme && strings.EqualFold(u.Host, f.c.upstream.Host) && u.User == nil && strings.HasPrefix(u.Path, "/") {
		u.Scheme, u.Host = "", ""
		head.Set("Location", u.String())
	}
}
