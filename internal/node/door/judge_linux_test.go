package door

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"berth/internal/network/judge"
	"berth/internal/network/policy"

	"golang.org/x/net/proxy"
)

// names is a resolver that knows one address for all of *.example.
type names struct{}

func (names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(host, ".example.") {
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// judged is a door whose flows a real judge carries, which has its servers on the loopback.
func judged(t *testing.T, servers map[string]string, allow ...string) *Door {
	t.Helper()
	p, err := policy.Compile(policy.Words{Mode: policy.Allow, Allow: allow, Origin: "task"})
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(judge.Options{Policy: p, Resolver: names{}, Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		at := to.String()
		if server := servers[at]; server != "" {
			at = server
		}
		return new(net.Dialer).DialContext(ctx, network, at)
	}})
	return serve(t, func(r Request, c Conn) {
		req := judge.Request{Host: r.Host, Port: r.Port, Proxy: r.Proxy}
		if r.Answer != nil {
			req.Answer = func(d policy.Decision) {
				answer := Decision{Rule: d.Rule, Hint: d.Hint}
				if d.Allow {
					answer.Verdict = Allowed
				}
				r.Answer(answer)
			}
		}
		j.Flow(t.Context(), req, c)
	})
}

func TestJudged(t *testing.T) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Method+" "+r.Host+r.URL.Path) })
	web, plain := httptest.NewTLSServer(hello), httptest.NewServer(hello)
	defer web.Close()
	defer plain.Close()
	literal := plain.Listener.Addr().String()
	d := judged(t, map[string]string{"93.184.216.34:443": web.Listener.Addr().String(), "93.184.216.34:80": literal}, "a.example", literal)
	const hint = `no rule allows it; the rule b.example would`
	const body = `{"host":"b.example","port":443,"hint":"` + hint + `"}` + "\n"
	if got := say(t, d.Addr(), "CONNECT b.example:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "\r\nX-Berth-Denied: "+hint+"\r\n") || !strings.HasSuffix(got, "\r\n\r\n"+body) {
		t.Errorf("%q", got)
	}

	tr := web.Client().Transport.(*http.Transport).Clone()
	tr.TLSClientConfig.InsecureSkipVerify = true // the certificate is of example.com; the judge looks at the name that is asked for
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: d.Addr()})
	client := &http.Client{Transport: tr}
	for _, at := range []string{"https://a.example/x", "http://a.example/x"} {
		if got, err := get(client, at); err != nil || got != "GET a.example/x" {
			t.Errorf("%s: %q, %v", at, got, err)
		}
	}
	if got, err := get(client, "https://b.example/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("%q, %v", got, err)
	}
	tr.CloseIdleConnections()

	if got, err := get(client, "http://b.example/"); err != nil || !strings.Contains(got, `"host":"b.example","port":80,"hint":"`) {
		t.Errorf("%q, %v", got, err)
	}
	if got := say(t, d.Addr(), "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") || !strings.Contains(got, "has a request for") {
		t.Errorf("%q", got)
	}
	if got := say(t, d.Addr(), "CONNECT "+literal+" HTTP/1.1\r\n\r\nGET /y HTTP/1.0\r\nHost: x\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\nGET x/y") {
		t.Errorf("%q", got)
	}
	if got := say(t, d.Addr(), "CONNECT 127.0.0.1:9 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("%q", got)
	}

	dialer, err := proxy.SOCKS5("tcp", d.Addr(), nil, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	socks := web.Client().Transport.(*http.Transport).Clone()
	socks.TLSClientConfig.InsecureSkipVerify = true
	socks.DialContext = dialer.(proxy.ContextDialer).DialContext
	defer socks.CloseIdleConnections()
	if got, err := get(&http.Client{Transport: socks}, "https://a.example/x"); err != nil || got != "GET a.example/x" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := get(&http.Client{Transport: socks}, "https://b.example/x"); err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("%q, %v", got, err)
	}
	withCurl(t, d)
}

// withCurl does the same with what most scripts have, where it is.
func withCurl(t *testing.T, d *Door) {
	path, err := exec.LookPath("curl")
	if err != nil {
		return
	}
	for line, want := range map[string]string{
		"https://a.example/x": "GET a.example/x",
		"http://a.example/x":  "GET a.example/x",
		"http://b.example/x":  `{"host":"b.example","port":80,"hint":"`,
		"https://b.example/x": " 403",
		"--proxy socks5h://" + d.Addr() + " https://a.example/x": "GET a.example/x",
		"--proxytunnel http://a.example/x":                       "GET a.example/x",
	} {
		c := exec.Command(path, append([]string{"-q", "--silent", "--show-error", "--insecure"}, strings.Split(line, " ")...)...)
		c.Env = d.Env(false)
		if b, _ := c.CombinedOutput(); !strings.Contains(string(b), want) {
			t.Errorf("curl %s: %q", line, b)
		}
	}
}
