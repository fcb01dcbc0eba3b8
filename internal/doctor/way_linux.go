package doctor

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"berth/internal/network/wayout"
	"berth/jobs"
)

// wayContact is what a node is to reach where --contact names nothing.
const wayContact = "example.org:443"

// wayTime bounds each try.
const wayTime = 4 * time.Second

// checkWay tries, on a node, which way its connections can leave.
func checkWay(ctx context.Context, l *look) []Finding {
	if !l.OnNode() {
		return nil
	}
	contact := wayContact
	if l.Contact != "" {
		contact = hostPort(l.Contact)
	}
	host, text, err := net.SplitHostPort(contact)
	port, perr := strconv.ParseUint(text, 10, 16)
	if err != nil || perr != nil {
		return one(Skip, "not tried: "+contact+" is no host with a port", "")
	}
	try := func(dial func(context.Context) (net.Conn, error)) error {
		ctx, cancel := context.WithTimeout(ctx, wayTime)
		defer cancel()
		c, err := dial(ctx)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	err = try(func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", contact)
	})
	if err == nil {
		return []Finding{with(Finding{Status: OK, Why: contact + " is reached from here, with this machine's resolvers"}, "via", jobs.ViaNode)}
	}
	direct := plainError(err)
	own := l.Profile.Proxy
	for _, p := range []string{own.HTTPS, l.Getenv("https_proxy"), l.Getenv("HTTPS_PROXY"), own.HTTP, l.Getenv("http_proxy"), l.Getenv("HTTP_PROXY")} {
		w, err := wayout.Proxy(strings.TrimSuffix(p, "/"))
		if err != nil {
			continue
		}
		if try(func(ctx context.Context) (net.Conn, error) {
			return w.(wayout.ByName).DialName(ctx, host, uint16(port))
		}) != nil {
			continue
		}
		f := Finding{Status: Warn, Why: contact + " is reached by the proxy " + withoutPassword(p) + ", and not from here (" + direct + ")",
			Do: "for networks with a list of names: via = \"proxy:" + withoutPassword(p) + "\" below [network] in a profile"}
		if l.Profile.Via == jobs.ViaProxy+p {
			f.Status, f.Do = OK, ""
		}
		if strings.Contains(p, "@") { // no password leaves the environment
			return []Finding{f}
		}
		return []Finding{with(f, "via", jobs.ViaProxy+p)}
	}
	f := Finding{Status: Warn, Why: contact + " is reached neither from here (" + direct + ") nor by a proxy",
		Do: "for networks with a list of names: via = \"login\" below [network] in a profile; " +
			"the login node is the way then (berth network relay start)"}
	if l.Profile.Via == jobs.ViaLogin {
		f.Status, f.Do = OK, ""
	}
	return []Finding{with(f, "via", jobs.ViaLogin)}
}
