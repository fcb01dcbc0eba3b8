package registry

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Through returns an HTTP client that takes its proxies from getenv, by the usual
// names, and not from this process's environment.
func Through(getenv func(string) string) *http.Client {
	word := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToUpper(name))
	}
	proxies := httpproxy.Config{HTTPProxy: word("http_proxy"), HTTPSProxy: word("https_proxy"), NoProxy: word("no_proxy")}
	proxy := proxies.ProxyFunc()
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
	return &http.Client{Transport: t}
}
