package judge

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"berth/internal/network/policy"
)

// maxHead bounds the head of a request, and of an answer that may be an upgrade.
const maxHead = 32 << 10

func bad(why string) error { return &refusal{status: 400, why: "HTTP: " + why} }

// head is a request's, taken apart.
type head struct {
	method, target, version string
	fields                  []field
	host                    string // the value of its one Host
	length                  int64  // of the body, -1 is chunked
	upgrade                 string // in lower case
}

type field struct{ name, value string }

// readHead reads a request's head. io.EOF is an end before its first byte.
func readHead(r *bufio.Reader) (*head, error) {
	left := maxHead
	line, err := readLine(r, &left)
	if err != nil {
		return nil, err
	}
	h := &head{}
	if err := h.first(line); err != nil {
		return nil, err
	}
	for {
		line, err := readLine(r, &left)
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case line == "":
			return h, h.settle()
		}
		name, value, ok := strings.Cut(line, ":")
		switch {
		case line[0] == ' ' || line[0] == '\t':
			return nil, bad("a folded header line")
		case !ok || !isToken(name):
			return nil, bad("a line that is no header")
		}
		h.fields = append(h.fields, field{name, strings.Trim(value, " \t")})
	}
}

// readLine reads a line that ends with CR and LF, and has no other control
// characters than tabs. What it needs is taken from left.
func readLine(r *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", &refusal{status: 431, why: "HTTP: a head larger than 32 KiB"}
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
	}
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok {
		return "", bad("a line that does not end with CR LF")
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", bad("a control character")
		}
	}
	return text, nil
}

// first reads the line of the request.
func (h *head) first(line string) error {
	words := strings.Split(line, " ")
	if len(words) != 3 || !isToken(words[0]) || words[1] == "" || strings.ContainsRune(words[1], '\t') {
		return bad("it does not begin with an HTTP request")
	}
	h.method, h.target, h.version = words[0], words[1], words[2]
	switch {
	case h.version != "HTTP/1.1" && h.version != "HTTP/1.0":
		return bad("it is not HTTP/1.0 or HTTP/1.1")
	case h.method == "CONNECT":
		return bad("CONNECT on a connection to a server")
	case h.target[0] == '/', h.target == "*" && h.method == "OPTIONS":
	case len(h.target) >= 7 && strings.EqualFold(h.target[:7], "http://"):
	default:
		return bad("a target that is neither a path nor a URL of http")
	}
	return nil
}

// settle finds what decides over the request.
func (h *head) settle() error {
	hosts, lengths, encodings := 0, 0, 0
	for _, f := range h.fields {
		switch strings.ToLower(f.name) {
		case "host":
			hosts++
			h.host = f.value
		case "content-length":
			lengths++
			n, err := strconv.ParseUint(f.value, 10, 62)
			if err != nil {
				return bad("a Content-Length that is no number")
			}
			h.length = int64(n)
		case "transfer-encoding":
			encodings++
			if !strings.EqualFold(f.value, "chunked") || h.version == "HTTP/1.0" {
				return bad("a Transfer-Encoding that is not chunked")
			}
			h.length = -1
		case "upgrade":
			if h.upgrade != "" {
				return bad("two Upgrade lines")
			}
			h.upgrade = strings.ToLower(f.value)
		}
	}
	switch {
	case hosts != 1:
		return bad(strconv.Itoa(hosts) + " Host lines")
	case lengths+encodings > 1:
		return bad("more than one length of the body")
	}
	return nil
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}

// hosts are those that the request names: the one of its Host line, and that of its
// target where this is a URL.
func (h *head) hosts() []string {
	if len(h.target) < 7 || h.target[0] == '/' {
		return []string{h.host}
	}
	authority := h.target[7:]
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	return []string{h.host, authority}
}

// splitHost reads NAME, NAME:PORT, ADDRESS:PORT, [ADDRESS]:PORT. Without a port it is 80.
func splitHost(s string) (name string, port uint16, ok bool) {
	end := strings.LastIndexByte(s, ':')
	if strings.HasSuffix(s, "]") || end < 0 {
		return s, 80, true
	}
	n, err := strconv.ParseUint(s[end+1:], 10, 16)
	return s[:end], uint16(n), err == nil && (s[0] == '[' || !strings.ContainsRune(s[:end], ':'))
}

// judged refuses what is for another host than the flow's.
func (h *head) judged(f *flow) error {
	for _, host := range h.hosts() {
		text, port, ok := splitHost(host)
		name, addr, valid := policy.Target(text)
		if !ok || !valid || name != f.name || f.name == "" && addr != f.addr || port != f.req.Port {
			return &refusal{status: 403, why: "HTTP: the connection to " + f.host() +
				" has a request for " + strconv.QuoteToASCII(host[:min(len(host), 64)])}
		}
	}
	if f.req.Proxy && h.target[0] == '/' {
		return bad("a request to a proxy without a URL")
	}
	return nil
}

// hopByHop are headers that are between a program and its proxy.
var hopByHop = []string{"connection", "proxy-connection", "keep-alive", "proxy-authorization", "proxy-authenticate"}

// bytes is the head as the server gets it. Upgrades but to websocket are left out:
// what follows them could not be judged. To a proxy's request the server is told that
// the connection ends after it, because the next one may be for another host.
func (h *head) bytes(proxy bool) []byte {
	var b strings.Builder
	target := h.target
	if proxy && target[0] != '/' && target != "*" {
		target = target[7:]
		i := strings.IndexAny(target, "/?#")
		if i < 0 {
			i = len(target)
		}
		if target = target[i:]; target == "" || target[0] != '/' {
			target = "/" + target
		}
	}
	b.WriteString(h.method + " " + target + " " + h.version + "\r\n")
	for _, f := range h.fields {
		name := strings.ToLower(f.name)
		if (name == "upgrade" || name == "http2-settings") && (proxy || h.upgrade != "websocket") {
			continue
		}
		if proxy && slices.Contains(hopByHop, name) {
			continue
		}
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	if proxy {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// copyBody passes a request's body on, and reads no byte more.
func (h *head) copyBody(r *bufio.Reader, to func([]byte) error) error {
	if h.length >= 0 {
		return copyBytes(r, h.length, to)
	}
	for {
		left := 64
		line, err := readLine(r, &left)
		if err != nil {
			return cut(err)
		}
		n, err := strconv.ParseUint(line, 16, 62)
		if err != nil {
			return bad("a chunk whose size is no plain number")
		}
		if err := to([]byte(line + "\r\n")); err != nil {
			return err
		}
		if err := copyBytes(r, int64(n), to); err != nil {
			return err
		}
		end := 2
		switch line, err := readLine(r, &end); {
		case err != nil && !errors.As(err, new(*refusal)):
			return cut(err)
		case err != nil || line != "":
			return bad("a chunk that does not end where it says, or a trailer")
		}
		if err := to([]byte("\r\n")); err != nil || n == 0 {
			return err
		}
	}
}

func copyBytes(r *bufio.Reader, n int64, to func([]byte) error) error {
	for n > 0 {
		if r.Buffered() == 0 {
			if _, err := r.Peek(1); err != nil {
				return cut(err)
			}
		}
		b, _ := r.Peek(int(min(n, int64(r.Buffered()))))
		if err := to(b); err != nil {
			return err
		}
		_, _ = r.Discard(len(b))
		n -= int64(len(b))
	}
	return nil
}

// cut says that an end came too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// upgradeWatch reads the head of a server's first answer as it goes by.
type upgradeWatch struct {
	head   []byte
	ended  bool
	answer chan bool // one value: whether it is 101
}

func newUpgradeWatch() *upgradeWatch { return &upgradeWatch{answer: make(chan bool, 1)} }

func (w *upgradeWatch) end(switched bool) {
	if !w.ended {
		w.ended = true
		w.head = nil
		w.answer <- switched
	}
}

// see looks at bytes from the server. Answers before the one that counts (100, 103)
// are passed over.
func (w *upgradeWatch) see(b []byte) {
	if w.ended {
		return
	}
	w.head = append(w.head, b...)
	for {
		i := strings.Index(string(w.head), "\r\n\r\n")
		if i < 0 {
			if len(w.head) > maxHead {
				w.end(false)
			}
			return
		}
		words := strings.SplitN(string(w.head[:min(i, 64)]), " ", 3)
		if len(words) < 2 || !strings.HasPrefix(words[0], "HTTP/1.") || len(words[1]) < 3 {
			w.end(false)
			return
		}
		switch code := words[1][:3]; {
		case code == "101":
			w.end(true)
			return
		case code[0] != '1':
			w.end(false)
			return
		}
		w.head = w.head[i+4:]
	}
}
