package registry

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
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
	by := map[string]string{"http": word("http_proxy"), "https": word("https_proxy")}
	not := strings.Split(word("no_proxy"), ",")
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		p := by[r.URL.Scheme]
		if p == "" || direct(r.URL.Hostname(), r.URL.Port(), not) {
			return nil, nil
		}
		if !strings.Contains(p, "://") {
			p = "http://" + p
		}
		return url.Parse(p)
	}
	return &http.Client{Transport: t}
}

// direct tells whether a host is reached without a proxy: it is this machine, or
// one of the words of no_proxy means it: "*", a name (and what is below it), an
// address, a network.
func direct(host, port string, not []string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() {
		return true
	}
	for _, w := range not {
		w = strings.ToLower(strings.TrimSpace(w))
		if w == "" {
			continue
		}
		if w == "*" {
			return true
		}
		if h, p, serr := net.SplitHostPort(w); serr == nil {
			if p != port {
				continue
			}
			w = h
		}
		if n, perr := netip.ParsePrefix(w); perr == nil {
			if err == nil && n.Contains(ip) {
				return true
			}
			continue
		}
		if w = strings.TrimPrefix(strings.TrimPrefix(w, "*"), "."); host == w || strings.HasSuffix(host, "."+w) {
			return true
		}
	}
	return false
}
