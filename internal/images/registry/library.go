package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"berth/internal/images"
	"berth/jobs"

	"github.com/goccy/go-yaml"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// library asks a library of SIFs (the Library API of Sylabs, which others speak
// as well) for what stands under a name: GET v1/images/PATH:TAG gives its hash,
// "sha256." and the SHA-256 of the file. Where the library is that a name
// without a host means, the container program's configuration says; logins to it are
// that program's affair, and a private image is [images.ErrNoDigest].
func (c *Client) library(ctx context.Context, n images.Name) (string, error) {
	if n.Digest != "" {
		return n.Digest, nil
	}
	base, err := c.libraryBase(ctx, n)
	if err != nil {
		return "", err
	}
	var said struct {
		Data struct {
			Hash string `json:"hash"`
		} `json:"data"`
	}
	u := base.JoinPath("v1/images", n.Repo+":"+n.Tag)
	u.RawQuery = url.Values{"arch": {c.arch()}}.Encode()
	err = c.asking(n, base.Host, base.Scheme == "http").get(ctx, u, &said)
	switch jobs.KindOf(err) {
	case jobs.KindAuth, jobs.KindNotFound:
		return "", images.ErrNoDigest
	}
	if err != nil {
		return "", err
	}
	digest := strings.Replace(said.Data.Hash, ".", ":", 1)
	if !images.IsDigest(digest) {
		return "", images.ErrNoDigest // images of old libraries have an id of another kind
	}
	return digest, nil
}

// get reads an answer in JSON.
func (a *asking) get(ctx context.Context, u *url.URL, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return a.unreachable(err)
	}
	resp, err := (&http.Client{Transport: a}).Do(req)
	if err != nil {
		return a.failed(err, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := transport.CheckError(resp, http.StatusOK); err != nil {
		return a.refused(resp.StatusCode, err)
	}
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		return a.bad(err)
	}
	return nil
}

// libraryBase is the address of the library: the name's own host, that of the container
// program's variable, or what the active one of its remotes says.
func (c *Client) libraryBase(ctx context.Context, n images.Name) (*url.URL, error) {
	scheme := "https"
	if n.Loopback() {
		scheme = "http"
	}
	if n.Host != "" {
		return &url.URL{Scheme: scheme, Host: n.Host}, nil
	}
	for _, v := range c.Tool.Libraries {
		if u, ok := address(c.Keychain(v)); ok {
			return u, nil
		}
	}
	host := activeRemote(c.Tool.Remotes(c.Keychain("HOME")))
	if host == "" {
		return nil, images.ErrNoDigest
	}
	var services struct {
		Library struct {
			URI string `json:"uri"`
		} `json:"libraryAPI"`
	}
	list := &url.URL{Scheme: "https", Host: host, Path: "/assets/config/config.prod.json"}
	if err := c.asking(n, host, false).get(ctx, list, &services); err != nil {
		return nil, err
	}
	if u, ok := address(services.Library.URI); ok {
		return u, nil
	}
	return nil, images.ErrNoDigest
}

// address reads where a library is: over TLS, or on this machine.
func address(s string) (*url.URL, bool) {
	u, err := url.Parse(s)
	ok := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && images.Name{Host: u.Host}.Loopback())
	return u, ok
}

// activeRemote is the host of the remote that the first of some files chooses, or "".
func activeRemote(files []string) string {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		var r struct {
			Active  string `yaml:"Active"`
			Remotes map[string]struct {
				URI string `yaml:"URI"`
			} `yaml:"Remotes"`
		}
		if err == nil && yaml.Unmarshal(b, &r) == nil && r.Remotes[r.Active].URI != "" {
			if u, err := url.Parse("https://" + r.Remotes[r.Active].URI); err == nil && u.User == nil && u.Path == "" {
				return u.Host
			}
		}
	}
	return ""
}
