package judge

import "errors"

// maxHello is how many bytes are read to find the end of a ClientHello.
const maxHello = 16 << 10

var (
	errNoHello  = errors.New("it does not begin with a TLS ClientHello")
	errBadHello = errors.New("its TLS ClientHello is malformed")
	errNoName   = errors.New("its TLS ClientHello names no server; a rule of opaque is for servers without a name")
	errBigHello = errors.New("its TLS ClientHello is larger than 16 KiB")
)

// startsHello reports whether bytes are the beginning of a TLS record with a handshake.
func startsHello(b []byte) bool {
	return len(b) > 0 && b[0] == 22 && (len(b) < 2 || b[1] == 3) && (len(b) < 3 || b[2] <= 4)
}

// parseHello reads the name of the server in a ClientHello, which may be spread over
// several records. It is not done while bytes are missing. The name is "" where the
// ClientHello has none.
func parseHello(b []byte) (name string, done bool, err error) {
	if !startsHello(b) {
		return "", false, errNoHello
	}
	var message []byte
	whole := false
	for rest := b; len(rest) >= 5 && !whole; {
		size := int(rest[3])<<8 | int(rest[4])
		if !startsHello(rest) || size == 0 || size > 16<<10 {
			return "", false, errBadHello
		}
		part := rest[5:min(5+size, len(rest))]
		message, rest = append(message, part...), rest[5+len(part):]
		if len(message) > 0 && message[0] != 1 {
			return "", false, errNoHello
		}
		if len(message) < 4 {
			continue
		}
		switch length := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3])); {
		case length > maxHello:
			return "", false, errBigHello
		case len(message) > length || len(message) == length && len(part) < size:
			return "", false, errBadHello // more of a handshake, before the server has said a word
		case len(message) == length:
			whole = true
		}
	}
	if !whole {
		if len(b) >= maxHello {
			return "", false, errBigHello
		}
		return "", false, nil
	}
	name, ok := helloName(message[4:])
	if !ok {
		return "", false, errBadHello
	}
	return name, true, nil
}

// helloName reads the body of a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3). Every
// length has to be exact, and a name is there once at most.
func helloName(b fields) (name string, ok bool) {
	_, ok1 := b.take(2 + 32) // version, random
	_, ok2 := b.vector(1)    // session
	_, ok3 := b.vector(2)    // ciphers
	_, ok4 := b.vector(1)    // compressions
	if len(b) == 0 {
		return "", ok1 && ok2 && ok3 && ok4
	}
	extensions, ok5 := b.vector(2)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || len(b) != 0 {
		return "", false
	}
	for seen := false; len(extensions) > 0; {
		kind, ok1 := extensions.number(2)
		body, ok2 := extensions.vector(2)
		if !ok1 || !ok2 {
			return "", false
		}
		if kind != 0 {
			continue
		}
		list, ok1 := body.vector(2)
		of, ok2 := list.number(1)
		host, ok3 := list.vector(2)
		if seen || !ok1 || !ok2 || !ok3 || of != 0 || len(host) == 0 || len(list) != 0 || len(body) != 0 {
			return "", false
		}
		name, seen = string(host), true
	}
	return name, true
}

// fields are the rest of a structure of TLS.
type fields []byte

func (f *fields) take(n int) (fields, bool) {
	if len(*f) < n {
		*f = nil
		return nil, false
	}
	head := (*f)[:n]
	*f = (*f)[n:]
	return head, true
}

// number reads an integer of so many bytes.
func (f *fields) number(size int) (n int, ok bool) {
	b, ok := f.take(size)
	for _, c := range b {
		n = n<<8 | int(c)
	}
	return n, ok
}

// vector reads bytes behind their length, which has so many bytes.
func (f *fields) vector(size int) (fields, bool) {
	n, ok := f.number(size)
	if !ok {
		return nil, false
	}
	return f.take(n)
}
