package jobs

import "errors"

// Kind says what sort of trouble an error is; the exit code follows from it.
type Kind int

// The kinds of errors. The number in the comment is the exit code.
const (
	KindUnknown  Kind = iota // 5: not classified
	KindUsage                // 2: the caller's words or files are wrong
	KindNotFound             // 3: the thing named does not exist
	KindAuth                 // 4: who the caller is does not suffice
	KindInfra                // 5: the machine, the scheduler or the network failed
	KindAgain                // 75: it may work later, unchanged
	KindConfig               // 78: configuration, or containment that is not available
	KindRejected             // 2: the scheduler understood and said no
	KindUnclear              // 5: it may or may not have happened; look before repeating
)

// Exit codes of the command line; docs/exit-codes.md is their page.
const (
	CodeOK          = 0
	CodeTaskFailed  = 1
	CodeUsage       = 2
	CodeNotFound    = 3
	CodeAuth        = 4
	CodeInfra       = 5
	CodeNoChanges   = 7
	CodePending     = 8
	CodeOutOfScope  = 9
	CodeCap         = 10
	CodePartial     = 11
	CodeAgain       = 75
	CodeConfig      = 78
	CodeNotRunnable = 126 // of a shell: it found the program and may not run it
	CodeTimeout     = 124
	CodeInterrupted = 130
)

// Blame is whose doing trouble of the site's is, and so whether another node may
// help.
type Blame string

// Whose doing it is; "" is not known: only the second time another node is
// tried.
const (
	BlameNode  Blame = "node"  // this node's: another one is tried
	BlameOther Blame = "other" // no node's, such as that a repository is gone
)

// Error is an error that a person will read: what failed, and what to do.
type Error struct {
	Kind Kind
	Msg  string // lower case, names the thing, no period
	Hint string // what to do next, with a command when one fixes it
	Err  error  // the cause, may be nil
	// Blame is whose doing it is, of kind KindInfra; "" is not known.
	Blame Blame
}

// Error returns the message and its cause, without the hint.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Msg
	}
	if e.Msg == "" {
		return e.Err.Error()
	}
	return e.Msg + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// find returns the first Error that is wanted, going from err inward. Of joined
// errors the first is looked through before the second.
func find(err error, wanted func(*Error) bool) *Error {
	for err != nil {
		e, ok := any(err).(*Error) // the chain itself is walked, so errors.As would look too far
		if ok && e == nil {
			return nil
		}
		if ok && wanted(e) {
			return e
		}
		if many, ok := any(err).(interface{ Unwrap() []error }); ok {
			for _, inner := range many.Unwrap() {
				if e := find(inner, wanted); e != nil {
					return e
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// BlameOf returns whose doing the outermost error in the chain is that says so.
func BlameOf(err error) Blame {
	if e := find(err, func(e *Error) bool { return e.Blame != "" }); e != nil {
		return e.Blame
	}
	return ""
}

// KindOf returns the kind of the outermost classified error in the chain.
func KindOf(err error) Kind {
	if e := find(err, func(e *Error) bool { return e.Kind != KindUnknown }); e != nil {
		return e.Kind
	}
	return KindUnknown
}

// HintOf returns the outermost hint in the chain, or "".
func HintOf(err error) string {
	if e := find(err, func(e *Error) bool { return e.Hint != "" }); e != nil {
		return e.Hint
	}
	return ""
}

// CodeOf returns the exit code that an error deserves; 0 for nil.
func CodeOf(err error) int {
	if err == nil {
		return CodeOK
	}
	switch KindOf(err) {
	case KindUsage, KindRejected:
		return CodeUsage
	case KindNotFound:
		return CodeNotFound
	case KindAuth:
		return CodeAuth
	case KindAgain:
		return CodeAgain
	case KindConfig:
		return CodeConfig
	case KindUnknown, KindInfra, KindUnclear:
	}
	return CodeInfra
}
