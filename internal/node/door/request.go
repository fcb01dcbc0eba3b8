package door

import "io"

// A Request is a connection that a program wants.
type Request struct {
	Host string // a name or an address, which nothing has judged
	Port uint16
	// Proxy says that a request with a URL comes first, all of which is left to read.
	Proxy bool
	// Answer tells the program the decision: the first one counts. Nil with Proxy.
	Answer func(Decision)
}

// A Verdict is the kind of a decision.
type Verdict uint8

// The verdicts.
const (
	Refused     Verdict = iota // by a rule or a limit: 403
	Allowed                    // 200
	Unavailable                // there is no way out now: 503
)

// A Decision is the answer to a request.
type Decision struct {
	Verdict
	Rule, Hint string
}

// A Conn is the stream to the program. Reading and writing may go on at once; either
// direction ends alone.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}
