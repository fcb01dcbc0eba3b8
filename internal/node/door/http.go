package door

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// maxHead bounds what a program says before its first byte for the server.
const maxHead = 64 << 10

// errProtocol is what is none of the protocols.
var errProtocol = errors.New("this is berth's proxy: it takes HTTP CONNECT, requests with a URL of http://, and SOCKS5")

// An opening is what a program wants.
type opening struct {
	host  string // plain, or an address
	port  uint16
	proxy bool // by a request with a URL
	size  int  // bytes of it that are for the door alone
}

// readHTTP reads how HTTP to a proxy begins: all of a CONNECT, and the first line of a
// request with a URL. With more, b is not all of that yet.
func readHTTP(b []byte) (o opening, more bool, err error) {
	line, size, more, err := cutLine(b)
	if more || err != nil {
		return o, more, err
	}
	o.size = size
	words := strings.Split(line, " ")
	if len(words) != 3 || !isToken(words[0]) || words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0" {
		return o, false, errProtocol
	}
	if words[0] != "CONNECT" {
		const scheme = "http://"
		url := words[1]
		if len(url) < len(scheme) || !strings.EqualFold(url[:len(scheme)], scheme) {
			return o, false, errProtocol
		}
		url = url[len(scheme):]
		if end := strings.IndexAny(url, "/?#"); end >= 0 {
			url = url[:end]
		}
		o.proxy, o.size = true, 0
		o.host, o.port, err = authority(url, 80)
		return o, false, err
	}
	if o.host, o.port, err = authority(words[1], 0); err != nil {
		return o, false, err
	}
	for {
		line, size, more, err := cutLine(b[o.size:])
		if more || err != nil {
			return o, more, err
		}
		if o.size += size; line == "" {
			return o, false, nil
		}
		if name, _, ok := strings.Cut(line, ":"); !ok || !isToken(name) {
			return o, false, errors.New("CONNECT: a line that is no header")
		}
	}
}

// cutLine returns the first line, which ends with CR LF and has no other control
// characters than tabs, and its size.
func cutLine(b []byte) (line string, size int, more bool, err error) {
	for i, c := range b {
		switch {
		case c == '\r' && i+1 == len(b):
			return "", 0, true, nil
		case c == '\r' && b[i+1] == '\n':
			return string(b[:i]), i + 2, false, nil
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", 0, false, errProtocol
		}
	}
	return "", 0, true, nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

// authority reads HOST:PORT, and HOST where there is a default port; an address of
// version 6 is in brackets.
func authority(s string, byDefault uint16) (host string, port uint16, err error) {
	bad := func() (string, uint16, error) {
		return "", 0, errors.New("not HOST:PORT: " + strconv.QuoteToASCII(s[:min(len(s), 64)]))
	}
	host, port = s, byDefault
	if end := strings.LastIndexByte(s, ':'); end >= 0 && !strings.HasSuffix(s, "]") {
		n, err := strconv.ParseUint(s[end+1:], 10, 16)
		if err != nil || s[end+1] == '0' {
			return bad()
		}
		host, port = s[:end], uint16(n)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(inner); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return bad()
		}
		host = inner
	} else if !isPlain(host) {
		return bad()
	}
	if port == 0 {
		return bad()
	}
	return host, port, nil
}

// isPlain reports whether s has the characters of a name. Whether it is one is not
// decided here.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '-' && s[i] != '.' && s[i] != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 255
}

// join is what [authority] reads.
func join(host string, port uint16) string {
	if strings.ContainsRune(host, ':') {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

// refusal is the body of an answer that is not 200.
type refusal struct {
	Host string `json:"host,omitempty"`
	Port uint16 `json:"port,omitempty"`
	Rule string `json:"rule,omitempty"`
	Hint string `json:"hint"`
}

var phrases = map[int]string{400: "Bad Request", 403: "Forbidden", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}

// answer is one of HTTP, after which the connection ends.
func (r refusal) answer(status int) []byte {
	body, _ := json.Marshal(r)
	head := "HTTP/1.1 " + strconv.Itoa(status) + " " + phrases[status] + "\r\nContent-Type: application/json\r\n"
	if status == 403 { // what shows no bodies of a proxy may show this
		head += "X-Berth-Denied: " + printable(strings.TrimPrefix(r.Rule+"; ", "; ")+r.Hint) + "\r\n"
	}
	return append([]byte(head+"Content-Length: "+strconv.Itoa(len(body)+1)+"\r\nConnection: close\r\n\r\n"), append(body, '\n')...)
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// answer is that to CONNECT.
func (o opening) answer(d Decision) []byte {
	r := refusal{o.host, o.port, d.Rule, d.Hint}
	switch d.Verdict {
	case Allowed:
		return []byte("HTTP/1.1 200 Connection established\r\n\r\n")
	case Unavailable:
		return r.answer(503)
	default:
		return r.answer(403)
	}
}
