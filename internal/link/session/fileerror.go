package session

import (
	"errors"
	"io/fs"
	"syscall"

	"berth/internal/link/transfer"
	"berth/internal/link/wire"
	"berth/jobs"
)

// FileError is trouble with a file inside.
type FileError struct {
	Kind string // one of the kinds in package wire, such as [wire.FileNotFound]
	Msg  string // a sentence that names the path
}

// Error returns the sentence.
func (e *FileError) Error() string { return e.Msg }

// FileKind returns the kind of trouble that an error is, "" when it is none
// with a file inside.
func FileKind(err error) string {
	var f *FileError
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

// fileErrors says what berth makes of a kind of trouble.
var fileErrors = map[string]struct {
	kind jobs.Kind
	hint string
}{
	wire.FileNotFound:   {jobs.KindNotFound, ""},
	wire.FileExists:     {jobs.KindUsage, ""},
	wire.FileIsDir:      {jobs.KindUsage, "name a file in it"},
	wire.FileNotDir:     {jobs.KindUsage, ""},
	wire.FileNotRegular: {jobs.KindUsage, "a command can use it: berth exec -- head -c 100 PATH"},
	wire.FilePermission: {jobs.KindUsage, "commands and files have the rights of the environment's user: berth exec -- id"},
	wire.FileTooLarge:   {jobs.KindUsage, "read it in parts, or use a command such as sed or grep"},
	wire.FileNoMatch:    {jobs.KindUsage, "read the file again: the text must match exactly, with its white space and line ends"},
	wire.FileAmbiguous:  {jobs.KindUsage, "give more lines around it until there is one such place, or replace all"},
	wire.FileChanged:    {jobs.KindInfra, "try again when nothing else writes it"},
	wire.FileInvalid:    {jobs.KindUsage, ""},
	wire.FileNoSpace:    {jobs.KindInfra, "see what is full: berth exec -- df -h"},
	wire.FileFailed:     {jobs.KindInfra, ""},
}

// answerOf takes a guest's answer; what it says is bounded like all else that
// it says.
func answerOf(req wire.FileRequest, res Result) (*wire.FileResult, error) {
	f := res.File
	if f == nil {
		msg := "the guest gave no answer about " + text(string(req.Path))
		if res.Exit.Error != "" {
			msg += ": " + res.Exit.Error
		}
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: msg}
	}
	f.Notes = textsOf(f.Notes)
	if f.Kind == "" && res.Exit.OK() {
		return f, nil
	}
	msg := text(f.Error)
	if msg == "" {
		msg = text(string(req.Path)) + ": " + text(f.Kind)
	}
	return nil, newFileError(f.Kind, msg)
}

// newFileError gives trouble with a file its class and its hint.
func newFileError(kind, msg string) error {
	what, known := fileErrors[kind]
	if !known {
		kind, what = wire.FileFailed, fileErrors[wire.FileFailed]
	}
	return &jobs.Error{Kind: what.kind, Hint: what.hint, Err: &FileError{Kind: kind, Msg: msg}}
}

// textsOf bounds texts of a guest.
func textsOf(in []string) (out []string) {
	const most = 20
	for _, s := range in[:min(len(in), most)] {
		out = append(out, text(s))
	}
	return out
}

// isUsage tells whether an error about a local file is the caller's.
func isUsage(err error) bool {
	for _, e := range []error{
		fs.ErrPermission, fs.ErrExist, transfer.ErrSpecial,
		syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
