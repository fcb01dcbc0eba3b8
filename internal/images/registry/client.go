package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"berth/internal/images"
	"berth/jobs"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/hashicorp/go-retryablehttp"
)

var _ images.Resolver = (*Client)(nil)

// Client asks registries.
type Client struct {
	Keychain Keychain
	Tool     images.Tool  // whose variables it looks at
	Progress func(string) // tells a person what is waited for; never nil
	Memo     Memo         // of indexes that were read; nil is none
	Arch     string       // Go's name of the architecture that is to run; "" is this machine's
	HTTP     *http.Client // whose transport is used; nil is one with the environment's proxies

	first time.Duration // the first wait before a registry is asked again; 0 is two seconds
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
	steps      = 20 // of one question; a registry may lead from place to place

	hintNone = "is that a registry? is there a proxy between?"
)

// Digest returns the digest of what stands under a name, for one platform. What
// a digest names is read and compared with it.
func (c *Client) Digest(ctx context.Context, n images.Name) (string, error) {
	if n.Scheme == "library" {
		return c.library(ctx, n)
	}
	host := n.Host
	if host == "docker.io" || host == "index.docker.io" {
		host = hubHost
	}
	a := c.asking(n, host, n.Loopback())
	var err error
	if a.login, err = c.Keychain.find(host, c.Tool); err != nil {
		return "", err
	}
	var options []name.Option
	if a.plain {
		options = append(options, name.Insecure)
	}
	reg, err := name.NewRegistry(host, options...)
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "ask for " + a.name(), Err: err, Hint: "is the name of the registry right?"}
	}
	repo := reg.Repo(n.Repo)
	var ref name.Reference = repo.Tag(n.Tag)
	if n.Digest != "" {
		ref = repo.Digest(n.Digest)
	}
	t, err := transport.NewWithContext(ctx, reg, authn.FromConfig(a.login), a, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return "", a.failed(err, a.noLogin(err))
	}
	with := []remote.Option{remote.WithContext(ctx), remote.WithTransport(t)}
	platform := "linux/" + c.arch()
	head, err := remote.Head(ref, with...)
	var unanswered *url.Error
	switch {
	case errors.As(err, &unanswered):
		return "", a.failed(err, err)
	case err != nil:
		// A refusal of HEAD has no words, and some registries do not know it: GET follows.
	case head.MediaType.IsImage() && images.IsDigest(head.Digest.String()):
		return head.Digest.String(), nil // whoever fetches it compares it with that
	case head.MediaType.IsIndex() && c.Memo != nil:
		if d := c.Memo.Recall(head.Digest.String(), platform); images.IsDigest(d) {
			return d, nil
		}
	}
	got, err := remote.Get(ref, with...)
	if err != nil {
		return "", a.failed(err, a.wrong(err))
	}
	var m struct { // either an index or a manifest
		Manifests []v1.Descriptor
		Config    *v1.Descriptor
	}
	if json.Unmarshal(got.Manifest, &m) != nil || m.Manifests == nil && m.Config == nil {
		return "", a.bad(errors.New("it is no manifest"))
	}
	if m.Manifests == nil {
		return got.Digest.String(), nil
	}
	digest, err := a.choose(m.Manifests)
	if err == nil && c.Memo != nil {
		c.Memo.Remember(got.Digest.String(), platform, digest)
	}
	return digest, err
}

func (c *Client) arch() string { return cmp.Or(c.Arch, runtime.GOARCH) }

// asking is a question to one host. It is also the transport of that question:
// it sees to it that nothing goes where it must not, and makes errors of refusals.
type asking struct {
	c     *Client
	n     images.Name
	host  string
	plain bool // the host is this machine, where plain HTTP is spoken
	login authn.AuthConfig
	inner retryablehttp.RoundTripper
	sent  atomic.Int32
}

func (c *Client) asking(n images.Name, host string, plain bool) *asking {
	a := &asking{c: c, n: n, host: host, plain: plain}
	base := http.DefaultTransport
	if c.HTTP != nil && c.HTTP.Transport != nil {
		base = c.HTTP.Transport
	}
	a.inner.Client = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: whole{base}, Timeout: oneRequest, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // who asks follows them, so that each step is looked at
		}},
		RetryMax: tries - 1, RetryWaitMin: cmp.Or(c.first, 2*time.Second), RetryWaitMax: longest,
		CheckRetry: a.again, Backoff: a.wait, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return a
}

// whole reads an answer to its end, so that one that breaks off is asked for again.
type whole struct{ http.RoundTripper }

func (w whole) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, mostBytes))
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// again says whether to ask once more. HEAD is not worth it, because GET follows.
func (a *asking) again(ctx context.Context, resp *http.Response, err error) (bool, error) {
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	var dial *net.OpError
	var most *http.MaxBytesError
	if err != nil {
		noWay := errors.As(err, &dial) && dial.Op == "dial"
		return again && !noWay && !errors.As(err, &most), nil
	}
	return again && resp.Request.Method != http.MethodHead && retryablehttp.DefaultBackoff(0, 0, 0, resp) <= longest, nil
}

// wait is how long to wait before that.
func (a *asking) wait(least, most time.Duration, attempt int, resp *http.Response) time.Duration {
	wait, what := retryablehttp.DefaultBackoff(least, most, attempt, resp), "does not answer"
	if resp != nil {
		what = fmt.Sprintf("answers %d", resp.StatusCode)
	}
	a.c.Progress(fmt.Sprintf("the registry %s %s for %s; asking again in %s", a.host, what, a.name(), wait.Round(time.Second)))
	return wait
}

var errPlain = errors.New("plain HTTP is spoken to this machine")

// RoundTrip sends a request that the library makes. What it carries may be a
// password or a token, and a registry may say where to: it goes over TLS only, or
// to this machine if the registry is here as well.
func (a *asking) RoundTrip(req *http.Request) (*http.Response, error) {
	u := req.URL
	here := u.Scheme == "http" && a.plain && images.Name{Host: u.Host}.Loopback()
	switch {
	case a.plain && u.Scheme == "https" && u.Host == a.host:
		return nil, errPlain // the library tries this first, and plain HTTP next
	case u.User != nil || u.Scheme != "https" && !here:
		return nil, a.fault(jobs.KindAuth, "leads to another place for", fmt.Errorf("%.200q is no address with https", u.Scheme+"://"+u.Host),
			"is that a registry? logins go over https only, or to this machine")
	case a.sent.Add(1) > steps:
		return nil, a.bad(errors.New("it leads from place to place")) // the library would follow for ever
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "berth")
	resp, err := a.inner.RoundTrip(req)
	if err != nil {
		return nil, a.unreachable(err)
	}
	if req.Method != http.MethodHead && resp.StatusCode >= 400 && resp.StatusCode != http.StatusUnauthorized {
		return nil, a.refused(resp.StatusCode, transport.CheckError(resp))
	}
	return resp, nil
}

// failed is what a person reads of an error of the library; other is that of
// one without a kind that could be known.
func (a *asking) failed(err, other error) error {
	var known *jobs.Error
	var status *transport.Error
	var sending *url.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &status):
		return a.refused(status.StatusCode, err)
	case errors.As(err, &sending):
		return a.unreachable(sending.Err) // without the address, which may hold a token
	}
	return other
}

func (a *asking) choose(list []v1.Descriptor) (string, error) {
	arch := a.c.arch()
	var have []string
	for _, e := range list {
		p := cmp.Or(e.Platform, &v1.Platform{})
		if p.OS == "linux" && p.Architecture == arch {
			if !images.IsDigest(e.Digest.String()) {
				return "", a.bad(fmt.Errorf("%.100q is no digest", e.Digest))
			}
			return e.Digest.String(), nil
		}
		if p.OS != "unknown" && len(have) < 20 {
			have = append(have, fmt.Sprintf("%.20s/%.20s", p.OS, p.Architecture))
		}
	}
	return "", &jobs.Error{Kind: jobs.KindNotFound,
		Msg:  a.name() + " has no image for linux/" + arch + ", but for " + jobs.Printable(strings.Join(have, ", ")),
		Hint: "name another image, or one made for that platform"}
}

func (a *asking) name() string {
	s := a.n.Scheme + "://" + strings.TrimPrefix(a.n.Host+"/"+a.n.Repo, "/")
	if a.n.Digest != "" {
		return s + "@" + a.n.Digest
	}
	return s + ":" + a.n.Tag
}

// printable is err in one line that does nothing to a terminal. What follows a
// break of the line is the answer in full, and may hold a token.
func printable(err error) error {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%.300s", jobs.Printable(s))
}

// fault is an error of a registry; what it does goes on with what was asked for.
func (a *asking) fault(kind jobs.Kind, does string, err error, hint string) *jobs.Error {
	return &jobs.Error{Kind: kind, Msg: "the registry " + a.host + " " + does + " " + a.name(), Err: err, Hint: hint}
}

func (a *asking) bad(err error) error {
	return a.fault(jobs.KindInfra, "gives no proper answer for", printable(err), hintNone)
}

func (a *asking) wrong(err error) error {
	return a.fault(jobs.KindInfra, "has sent something else than", printable(err),
		"the content was changed on its way, or the registry is broken: do not use it")
}

func (a *asking) noLogin(err error) error {
	return a.fault(jobs.KindAuth, "wants a login for", printable(err), a.c.Tool.HintLogin())
}

func (a *asking) unreachable(err error) error {
	var most *http.MaxBytesError
	if errors.As(err, &most) {
		return a.bad(errors.New("it is more than a manifest may have"))
	}
	return a.fault(jobs.KindInfra, "cannot be asked for", err,
		"is there a network here? else fetch it where there is one (berth image pull --in-job does on a node); "+
			"with --offline a tag is what the cache has of it")
}

// refused makes an error of an answer, with the registry's own words.
func (a *asking) refused(code int, err error) error {
	said := http.StatusText(code)
	var status *transport.Error
	words := errors.As(err, &status) && len(status.Errors) > 0
	if words {
		said = fmt.Sprintf("%.60s: %.300s", status.Errors[0].Code, status.Errors[0].Message)
	}
	e := a.fault(jobs.KindInfra, fmt.Sprintf("answers %d for", code), errors.New(jobs.Printable(said)), hintNone)
	switch {
	case code == http.StatusTooManyRequests:
		e.Kind, e.Hint = jobs.KindAgain, "it answers only so many requests: give it a login ("+a.c.Tool.HintLogin()+"), or try later"
	case code == http.StatusUnauthorized && !words && a.login == (authn.AuthConfig{}):
		return a.noLogin(errors.New("no login is set"))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Kind, e.Hint = jobs.KindAuth, "either the image does not exist or it needs a login: "+a.c.Tool.HintLogin()
	case code == http.StatusNotFound:
		e.Kind, e.Hint = jobs.KindNotFound, "is the name right? "+a.name()
	case code >= 500:
		e.Hint = "the registry fails: try again later, or --offline takes what the cache has"
	}
	return e
}
