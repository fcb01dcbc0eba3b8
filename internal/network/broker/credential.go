package broker

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"berth/internal/network/credentials"
	"berth/jobs"

	"github.com/hashicorp/go-retryablehttp"
)

// Credential is one with its key, and the placeholder that stands for it inside.
type Credential struct {
	jobs.Credential
	Key         string // "" is that it comes later ([Broker.Give])
	Placeholder string // see [credentials.Placeholder]
}

// Format shows no key, however it is printed.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "credential %s", c.Name) }

// credential is one that is ready.
type credential struct {
	Credential
	upstream *url.URL
	held     atomic.Pointer[held] // nil is that its key has not come yet

	transport *http.Transport
	again     *retryablehttp.Client
}

func settle(c Credential) (*credential, error) {
	if part, err := credentials.Check(c.Credential); err != nil {
		return nil, fmt.Errorf("credential %q: %s: %w", c.Name, part, err)
	}
	if len(c.Placeholder) < 16 || c.Placeholder == c.Key {
		return nil, fmt.Errorf("the credential %s has no placeholder", c.Name)
	}
	u, err := credentials.Upstream(c.Credential)
	if err != nil {
		return nil, err
	}
	out := &credential{Credential: c, upstream: u}
	if c.Key == "" {
		return out, nil
	}
	h, err := hold(&c.Credential, c.Key)
	if err != nil {
		return nil, err
	}
	out.held.Store(h)
	return out, nil
}

// held is a key as requests have it.
type held struct {
	header string   // that has the key
	value  string   // of it
	secret [][]byte // how the key could stand in an answer
}

func hold(c *jobs.Credential, key string) (*held, error) {
	if err := credentials.CheckKey(key); err != nil {
		return nil, fmt.Errorf("the key of the credential %s: %w", c.Name, err)
	}
	h := &held{header: "Authorization", value: "Bearer " + key, secret: [][]byte{[]byte(key)}}
	switch {
	case c.Header != "":
		h.header, h.value = c.Header, key
	case c.User != "":
		login := base64.StdEncoding.EncodeToString([]byte(c.User + ":" + key))
		h.value, h.secret = "Basic "+login, append(h.secret, []byte(strings.TrimRight(login, "=")))
	}
	if escaped := url.QueryEscape(key); escaped != key {
		h.secret = append(h.secret, []byte(escaped))
	}
	return h, nil
}

// Give hands over the keys of all credentials, by their names. The first ones stay. Where
// one is missing, or is no key, none is taken.
func (b *Broker) Give(keys map[string]string) error {
	all := map[*credential]*held{}
	for name, c := range b.list {
		h, err := hold(&c.Credential.Credential, keys[name])
		if err != nil {
			return err
		}
		all[c] = h
	}
	for c, h := range all {
		c.held.CompareAndSwap(nil, h)
	}
	return nil
}

// Headers and query keys in which programs send keys. They are never passed on.
var (
	keyHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "Private-Token", "X-Auth-Token", "X-Access-Token"}
	keyQueries = []string{"key", "api_key", "api-key", "apikey", "access_token", "oauth_token", "private_token", "token"}
)

// authentic reports whether a request has the placeholder, wherever programs put one.
func (c *credential) authentic(r *http.Request, query url.Values) bool {
	var said []string
	for _, name := range append(slices.Clone(keyHeaders), c.Header) {
		for _, v := range r.Header.Values(name) {
			scheme, rest, two := strings.Cut(v, " ")
			switch {
			case two && strings.EqualFold(scheme, "bearer"), two && strings.EqualFold(scheme, "token"):
				v = strings.TrimLeft(rest, " ")
			case two && strings.EqualFold(scheme, "basic"):
				login, _ := base64.StdEncoding.DecodeString(strings.TrimLeft(rest, " "))
				_, v, _ = strings.Cut(string(login), ":")
			}
			said = append(said, v)
		}
	}
	for _, name := range keyQueries {
		said = append(said, query[name]...)
	}
	ok := 0
	want := sha256.Sum256([]byte(c.Placeholder))
	for _, v := range said {
		have := sha256.Sum256([]byte(v))
		ok |= subtle.ConstantTimeCompare(have[:], want[:])
	}
	return ok == 1
}

// Headers that are of a connection, or say what is settled here.
var (
	hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"}
	requestHeaders = []string{"Host", "Content-Length", "Expect", "Cookie", "Accept-Encoding", "Idempotency-Key", "X-Idempotency-Key",
		"Forwarded", "Via", "X-Http-Method-Override",
		"X-Http-Method", "X-Method-Override", "X-Goog-Fieldmask", "X-Original-Url", "X-Rewrite-Url"}
	answerHeaders = []string{"Set-Cookie", "Set-Cookie2", "Alt-Svc", "Strict-Transport-Security", "Content-Encoding"}
)

// passed are the headers of a message that go on.
func passed(h http.Header, not ...[]string) http.Header {
	out := h.Clone()
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, list := range append(not, hopHeaders) {
		for _, name := range list {
			out.Del(name)
		}
	}
	for name := range out {
		if strings.HasPrefix(name, "X-Forwarded-") || strings.Contains(name, "_") { // which some servers take for a dash
			out.Del(name)
		}
	}
	return out
}
