package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

var _ images.Resolver = (*Client)(nil)

// Client asks registries.
type Client struct {
	Keychain Keychain
	Progress func(string) // tells a person what is waited for; never nil
	Memo     Memo         // of indexes that were read; nil is none
	Arch     string       // Go's name of the architecture that is to run; "" is this machine's
	HTTP     *http.Client // nil is one with the environment's proxies
	Sleep    func(context.Context, time.Duration) error
}

// Memo remembers which manifest of an index is for a platform. Both are known by
// the digests of their contents, so that it never grows old. A registry may
// count the reading of a manifest against a limit, but not the question what
// its digest is.
type Memo interface {
	Recall(index, platform string) (digest string)
	Remember(index, platform, digest string)
}

const (
	hubHost    = "registry-1.docker.io" // docker.io itself is a web site
	mostBytes  = 4 << 20                // of a manifest; registries allow no more
	oneRequest = time.Minute
	longest    = 2 * time.Minute // to wait because a registry says so
	tries      = 4
)

const (
	typeIndex = "application/vnd.oci.image.index.v1+json"
	typeList  = "application/vnd.docker.distribution.manifest.list.v2+json"

	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeSchema2  = "application/vnd.docker.distribution.manifest.v2+json"

	accept = typeIndex + ", " + typeList + ", " + typeManifest + ", " + typeSchema2
)

// Digest returns the digest of what stands under a name, for one platform. What
// a digest names is read and compared with it.
func (c *Client) Digest(ctx context.Context, n images.Name) (string, error) {
	if n.Scheme == "library" {
		return c.library(ctx, n)
	}
	a := &asking{c: c, n: n, host: n.Host, scheme: "https"}
	if n.Host == "docker.io" || n.Host == "index.docker.io" {
		a.host = hubHost
	}
	if n.Loopback() {
		a.scheme = "http"
	}
	var err error
	if a.login, err = c.Keychain.find(a.host); err != nil {
		return "", err
	}
	what := n.Digest
	if what == "" {
		what = n.Tag
	}
	path := "/v2/" + n.Repo + "/manifests/"
	head, err := a.ask(ctx, http.MethodHead, path+what)
	if err != nil {
		return "", err
	}
	platform := "linux/" + c.arch()
	if images.IsDigest(head.digest) && (n.Digest == "" || n.Digest == head.digest) {
		switch {
		case !head.index && head.manifest:
			// Whoever fetches it compares it with that.
			return head.digest, nil
		case head.index && c.Memo != nil:
			if d := c.Memo.Recall(head.digest, platform); images.IsDigest(d) {
				return d, nil
			}
		}
	}
	got, err := a.manifest(ctx, what)
	if err != nil {
		return "", err
	}
	if n.Digest != "" && got.digest != n.Digest {
		return "", a.wrong(n.Digest, got.digest)
	}
	if got.Manifests == nil {
		return got.digest, nil
	}
	digest, err := a.choose(got)
	if err == nil && c.Memo != nil {
		c.Memo.Remember(got.digest, platform, digest)
	}
	return digest, err
}

func (c *Client) arch() string {
	if c.Arch != "" {
		return c.Arch
	}
	return runtime.GOARCH
}

// answer is what a registry says that it has.
type answer struct {
	body            []byte
	digest          string // as the registry says
	index, manifest bool   // by its type
}

// manifest is what is wanted of a manifest, or of an index of several.
type manifest struct {
	digest    string // of its bytes
	MediaType string `json:"mediaType"`
	Manifests []struct {
		Digest   string
		Platform struct{ OS, Architecture, Variant string }
	} `json:"manifests"`
	Config *struct{ Digest string } `json:"config"`
}

type asking struct {
	c            *Client
	n            images.Name
	scheme, host string
	login        login
	bearer       string
	basic        bool
}

func (a *asking) choose(m manifest) (string, error) {
	arch := a.c.arch()
	var have []string
	for _, e := range m.Manifests {
		if e.Platform.OS == "linux" && e.Platform.Architecture == arch {
			if !images.IsDigest(e.Digest) {
				return "", a.bad(fmt.Sprintf("%.100q, which is no digest", e.Digest))
			}
			return e.Digest, nil
		}
		if e.Platform.OS != "unknown" && len(have) < 20 {
			have = append(have, fmt.Sprintf("%.20s/%.20s", e.Platform.OS, e.Platform.Architecture))
		}
	}
	return "", &jobs.Error{Kind: jobs.KindNotFound, Msg: a.name() + " has no image for linux/" + arch + ", but for " + jobs.Printable(strings.Join(have, ", ")), Hint: "name another image, or one made for that platform"}
}

func (a *asking) name() string {
	s := a.n.Scheme + "://" + strings.TrimPrefix(a.n.Host+"/"+a.n.Repo, "/")
	if a.n.Digest != "" {
		return s + "@" + a.n.Digest
	}
	return s + ":" + a.n.Tag
}

func (a *asking) bad(what string) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the registry " + a.host + " answers for " + a.name() + " with " + what, Hint: "is that a registry? is there a proxy between?"}
}

func (a *asking) wrong(want, got string) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the registry " + a.host + " has sent something else than " + a.n.Repo + "@" + want, Err: errors.New("the digest of what came is " + got), Hint: "the content was changed on its way, or the registry is broken: do not use it"}
}

func (a *asking) manifest(ctx context.Context, what string) (manifest, error) {
	got, err := a.ask(ctx, http.MethodGet, "/v2/"+a.n.Repo+"/manifests/"+what)
	if err != nil {
		return manifest{}, err
	}
	body := got.body
	var m manifest
	if err := json.Unmarshal(body, &m); err != nil || m.Config == nil && m.Manifests == nil {
		return manifest{}, a.bad("what is no manifest")
	}
	sum := sha256.Sum256(body)
	m.digest = "sha256:" + hex.EncodeToString(sum[:])
	return m, nil
}

// ask asks until there is an answer that counts.
func (a *asking) ask(ctx context.Context, method, path string) (answer, error) {
	for try := 1; ; try++ {
		got, wait, err := a.once(ctx, method, path, true)
		if err == nil || ctx.Err() != nil || wait < 0 || try == tries {
			return got, err
		}
		if wait == 0 {
			wait = time.Duration(1<<try) * time.Second
		}
		if wait > longest {
			return answer{}, err
		}
		a.c.Progress(fmt.Sprintf("%v; asking again in %s", err, wait))
		if serr := a.c.sleep(ctx, wait); serr != nil {
			return answer{}, err
		}
	}
}

func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if c.Sleep != nil {
		return c.Sleep(ctx, d)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (c *Client) client() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return http.DefaultClient
}

// once asks one time, and once more after a login. A negative wait says that
// the answer would be the same again; 0 is a wait of our own choice. A refusal of
// HEAD has no words, and some registries do not know it: it is no answer, and
// GET follows.
func (a *asking) once(ctx context.Context, method, path string, mayLogin bool) (got answer, wait time.Duration, err error) {
	rctx, cancel := context.WithTimeout(ctx, oneRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(rctx, method, a.scheme+"://"+a.host+path, nil)
	if err != nil {
		return answer{}, -1, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "berth")
	switch {
	case a.bearer != "":
		req.Header.Set("Authorization", "Bearer "+a.bearer)
	case a.basic:
		req.SetBasicAuth(a.login.user, a.login.password)
	}
	resp, err := a.c.client().Do(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return answer{}, -1, a.unreachable(err) // there is no way there
		}
		return answer{}, 0, a.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes+1))
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch {
	case err != nil:
		return answer{}, 0, a.unreachable(err)
	case len(body) > mostBytes:
		return answer{}, -1, a.bad("more than a manifest may have")
	case resp.StatusCode == http.StatusOK:
		index := kind == typeIndex || kind == typeList
		return answer{body: body, digest: resp.Header.Get("Docker-Content-Digest"), index: index, manifest: kind == typeManifest || kind == typeSchema2}, -1, nil
	case resp.StatusCode == http.StatusUnauthorized && mayLogin:
		if err := a.authenticate(ctx, resp.Header.Values("WWW-Authenticate")); err != nil {
			return answer{}, -1, err
		}
		return a.once(ctx, method, path, false)
	case method == http.MethodHead:
		return answer{}, -1, nil
	}
	wait, err = a.refused(resp, body)
	return answer{}, wait, err
}

func (a *asking) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the address, which may hold a token
	}
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the registry " + a.host + " cannot be asked for " + a.name(), Err: err, Hint: "is there a network here? else fetch it where there is one (berth image pull --in-job does on a node); with --offline a tag is what the cache has of it"}
}

// refused makes an error of an answer, with the registry's own words.
func (a *asking) refused(resp *http.Response, body []byte) (time.Duration, error) {
	said := words(body)
	if said == "" {
		said = resp.Status
	}
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the registry %s answers %d for %s", a.host, resp.StatusCode, a.name()), Err: errors.New(jobs.Printable(said))}
	wait := time.Duration(-1)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		e.Kind, e.Hint = jobs.KindAgain, "it answers only so many requests: give it a login ("+images.HintLogin+"), or try later"
		wait = after(resp.Header.Get("Retry-After"))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Kind, e.Hint = jobs.KindAuth, "either the image does not exist or it needs a login: "+images.HintLogin
	case code == http.StatusNotFound:
		e.Kind, e.Hint = jobs.KindNotFound, "is the name right? "+a.name()
	case code >= 500:
		e.Hint = "the registry fails: try again later, or --offline takes what the cache has"
		wait = after(resp.Header.Get("Retry-After"))
	default:
		e.Hint = "is that a registry? is there a proxy between?"
	}
	return wait, e
}

// after reads Retry-After in seconds; 0 is nothing said.
func after(s string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, 1<<20)) * time.Second
}

// words are what a registry says in the error of its protocol.
func words(body []byte) string {
	var said struct {
		Errors  []struct{ Code, Message string }
		Details string
	}
	if json.Unmarshal(body, &said) != nil || len(said.Errors) == 0 {
		return ""
	}
	e := said.Errors[0]
	return fmt.Sprintf("%.60s: %.300s", e.Code, e.Message)
}

var parameter = pattern.Lazy(`([a-z]+)="([^"]*)"`)

// authenticate does what an answer of 401 asks for: Basic, or a token that
// another address gives. A password goes over TLS only, or to this machine.
func (a *asking) authenticate(ctx context.Context, challenges []string) error {
	no := func(why string) error {
		return &jobs.Error{Kind: jobs.KindAuth, Msg: "the registry " + a.host + " wants a login for " + a.name(), Err: errors.New(why), Hint: images.HintLogin}
	}
	for _, ch := range challenges {
		kind, rest, _ := strings.Cut(ch, " ")
		switch strings.ToLower(kind) {
		case "basic":
			if a.login.user == "" {
				return no("no login is set")
			}
			a.basic = true
			return nil
		case "bearer":
			p := map[string]string{}
			for _, m := range parameter().FindAllStringSubmatch(rest, -1) {
				p[m[1]] = m[2]
			}
			return a.token(ctx, p["realm"], p["service"], no)
		}
	}
	return no("it does not say how")
}

func (a *asking) token(ctx context.Context, realm, service string, no func(string) error) error {
	u, err := url.Parse(realm)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && a.n.Loopback() && images.Name{Host: u.Host}.Loopback()) {
		return no(fmt.Sprintf("it names %.200q as the place for tokens, which is no address with https", realm))
	}
	q := u.Query()
	if service != "" {
		q.Set("service", service)
	}
	q.Set("scope", "repository:"+a.n.Repo+":pull")
	u.RawQuery = q.Encode()
	rctx, cancel := context.WithTimeout(ctx, oneRequest)
	defer cancel()
	req, err := http.NewRequestWithContext(rctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return no("its place for tokens cannot be asked")
	}
	req.Header.Set("User-Agent", "berth")
	if a.login.user != "" {
		req.SetBasicAuth(a.login.user, a.login.password)
	}
	resp, err := a.c.client().Do(req)
	if err != nil {
		return a.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return a.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		_, err := a.refused(resp, body)
		return err
	}
	var t struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if json.Unmarshal(body, &t) != nil || t.Token == "" && t.Access == "" {
		return no("its place for tokens gives none")
	}
	if a.bearer = t.Token; a.bearer == "" {
		a.bearer = t.Access
	}
	return nil
}
