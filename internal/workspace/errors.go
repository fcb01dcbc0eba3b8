package workspace

import (
	"errors"
	"fmt"
	"strings"
)

// Conditions that a caller may want to tell apart with [errors.Is].
var (
	// ErrNotRepository: the directory is not in a git repository, or git
	// refuses to work in it.
	ErrNotRepository = errors.New("not a git repository")
	// ErrNoCommits: the repository has no commit yet.
	ErrNoCommits = errors.New("no commits")
	// ErrUnknownBase: the asked base names no commit of the repository.
	ErrUnknownBase = errors.New("unknown base")
	// ErrBranchExists: the branch exists and holds another commit, or its name
	// collides with an existing branch.
	ErrBranchExists = errors.New("branch exists")
	// ErrRejected: a bundle did not hold what its result says.
	ErrRejected = errors.New("bundle rejected")
	// ErrSpace: the user's repository has no space for the result.
	ErrSpace = errors.New("no space")
	// ErrChanging: the task changed files in a way that a checkpoint cannot hold.
	ErrChanging = errors.New("files changed while they were read")
	// ErrReplaced: the task has put something else where a work tree was.
	ErrReplaced = errors.New("work tree replaced")
	// ErrInvalid: an argument (branch name, pattern) is not usable.
	ErrInvalid = errors.New("invalid")
)

// Error is a failure that a person can do something about.
type Error struct {
	Kind error  // one of the Err values of this package
	Msg  string // what is wrong, naming the thing
	Tip  string // what to do, or empty
	Err  error  // the cause, or nil
}

func (e *Error) Error() string { return e.Msg }

// Hint says what to do about the error.
func (e *Error) Hint() string { return e.Tip }

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// GitError is a git command that failed.
type GitError struct {
	Command string // the subcommand, as in "git index-pack"
	Stderr  string // the end of what it wrote
	Err     error  // what Run returned
}

func (e *GitError) Error() string {
	if tail := lastLines(e.Stderr, 3); tail != "" {
		return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, tail)
	}
	return fmt.Sprintf("%s: %v", e.Command, e.Err)
}

// Unwrap gives what Run returned.
func (e *GitError) Unwrap() error { return e.Err }

// lastLines gives the last n lines on one line, with control characters
// replaced: git prints file names, which a task chooses.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-n):]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(strings.Join(lines, "; "), "?"))
}
