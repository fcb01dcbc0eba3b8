package jobs

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseHost reads [USER@]HOST[:PORT]. An address of IPv6 stands in brackets
// when a port follows it. What could not be a host at all is left to whoever
// goes there.
func ParseHost(s string) (SSHSpec, error) {
	bad := func(why string) (SSHSpec, error) {
		return SSHSpec{}, &Error{Kind: KindUsage, Msg: fmt.Sprintf("%q is not [USER@]HOST[:PORT]: %s", s, why),
			Hint: "write for example ada@cluster.example.org, or a Host of ~/.ssh/config"}
	}
	var out SSHSpec
	host := s
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		if out.User, host = s[:i], s[i+1:]; out.User == "" {
			return bad("the user is empty")
		}
	}
	port := ""
	switch {
	case strings.HasPrefix(host, "["):
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return bad("a bracket is open")
		}
		rest := host[end+1:]
		host = host[1:end]
		if rest != "" {
			if !strings.HasPrefix(rest, ":") {
				return bad("something stands behind the bracket")
			}
			port = rest
		}
	case strings.Count(host, ":") == 1:
		i := strings.IndexByte(host, ':')
		host, port = host[:i], host[i:]
	}
	if port != "" {
		n, err := strconv.Atoi(port[1:])
		if err != nil || n < 1 || n > 65535 {
			return bad("the port is no number from 1 to 65535")
		}
		out.Port = n
	}
	if out.Host = host; host == "" {
		return bad("the host is empty")
	}
	return out, nil
}
