package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// What a record on one machine and its copy on another have in common. The
// names are those of the files; nothing else of a record is ever copied.
const (
	FileSubmitted = fileSubmitted
	FileClaim     = fileClaim
	FileArgv      = fileArgv
	FileReceipt   = fileReceipt
	FileExit      = fileExit
	FileVerdict   = fileVerdict
	FileDecision  = fileDecision
	FileReaper    = fileReaper
	FileCancel    = fileCancel // of the job; the others are an attempt's
)

// MaxOnce bounds a file that is created once and copied between machines.
const MaxOnce = 8 << 20

// Import creates one of the files that are created once, as another machine
// has it, and returns whether this call did. What cannot be read as such a file
// of this attempt is refused, so that no record becomes unreadable by it. When
// the file exists already, it stays as it is.
func Import(attemptDir, name string, data []byte) (bool, error) {
	bad := func(err error) (bool, error) {
		return false, &jobs.Error{Kind: jobs.KindInfra, Msg: "a copied " + name + " is refused", Err: err}
	}
	if len(data) > MaxOnce {
		return bad(fmt.Errorf("it has %d bytes", len(data)))
	}
	if IsAllowName(name) {
		if err := importAllow(JobDirOf(attemptDir), name, data); err != nil {
			return bad(err)
		}
		return true, nil
	}
	dir := attemptDir
	var v any
	var version *int
	var attempt *string
	switch name {
	case fileSubmitted, fileReaper:
		x := &jobs.Submitted{}
		v, version = x, &x.Version
	case fileClaim:
		x := &jobs.Claim{}
		v, version, attempt = x, &x.Version, &x.Attempt
	case fileReceipt:
		x := &jobs.Receipt{}
		v, version, attempt = x, &x.Version, &x.Attempt
	case fileExit:
		x := &jobs.ExitRecord{}
		v, version, attempt = x, &x.Version, &x.Attempt
	case fileVerdict:
		x := &jobs.Verdict{}
		v, version = x, &x.Version
	case fileDecision:
		x := &jobs.Decision{}
		v, version, attempt = x, &x.Version, &x.Attempt
	case fileCancel:
		x := &jobs.Cancel{}
		v, version, dir = x, &x.Version, JobDirOf(attemptDir)
	case fileArgv:
		v = &[]string{}
	default:
		return bad(errors.New("no such file is copied"))
	}
	if version == nil {
		if err := json.Unmarshal(data, v); err != nil {
			return bad(err)
		}
	} else if err := decode(name, data, v, version); err != nil {
		return bad(err)
	}
	var err error
	switch x := v.(type) {
	case *jobs.ExitRecord:
		err = checkFinal(name, x.State)
	case *jobs.Verdict:
		err = checkFinal(name, x.State)
	case *jobs.Decision:
		err = checkDecision(name, x)
	}
	if err != nil {
		return bad(err)
	}
	if attempt != nil {
		mine, err := LoadAttempt(attemptDir)
		if err != nil {
			return false, err
		}
		if *attempt != mine.Info.ID {
			return bad(fmt.Errorf("it is of the attempt %q", *attempt))
		}
	}
	return CreateOnce(filepath.Join(dir, name), data)
}

// ReceiveAttempt records an attempt that has begun on another machine, behind
// the one before it, which must have a decision to retry here. When it stands
// here already that is no error.
func ReceiveAttempt(jobDir string, info jobs.AttemptInfo, script string) error {
	bad := func(format string, args ...any) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "a copied attempt is refused", Err: fmt.Errorf(format, args...)}
	}
	rec, err := LoadDir(jobDir)
	if err != nil {
		return err
	}
	if info.Version > fileVersion || !jobs.ValidID(info.ID) ||
		info.Number < 2 || info.Number > jobs.MostAttempts+jobs.MostWaits ||
		info.Change.Memory < 0 || info.Change.Time < 0 {
		return bad("it is number %d, %q", info.Number, info.ID)
	}
	for _, text := range append([]string{info.Name}, info.Change.Exclude...) {
		if err := jobs.CheckText("a name in it", text); err != nil || len(text) > 255 {
			return bad("a name in it is %.60q", text)
		}
	}
	if n := info.Number - 2; n >= len(rec.Attempts) || rec.Attempts[n].Decision == nil || rec.Attempts[n].Decision.Verb != jobs.VerbRetry {
		return bad("nothing has decided that there is an attempt %d", info.Number)
	}
	dir, _, err := Begin(jobDir, info, script)
	if err != nil {
		return err
	}
	if a, err := LoadAttempt(dir); err != nil || a.Info.ID != info.ID {
		return bad("attempt %d is another one: %w", info.Number, errors.Join(err))
	}
	return nil
}

// beatSlack is how far two estimates of the time of one beat may be apart: an
// answer takes its time to come here. The next beat is later than that.
const beatSlack = 3 * time.Second

// SetBeat records when the runner was last heard of, by this machine's clock:
// the beat itself is on another machine, whose clock may differ.
func SetBeat(attemptDir string, at time.Time) error {
	path := filepath.Join(attemptDir, fileBeat)
	if fi, err := os.Stat(path); err == nil && at.Sub(fi.ModTime()) < beatSlack {
		return nil
	}
	tmp, err := disk.WriteTemp(attemptDir, []byte(at.UTC().Format("2006-01-02T15:04:05.000Z")+"\n"), 0o600)
	if err == nil {
		err = os.Chtimes(tmp, at, at)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil && tmp != "" {
		_ = os.Remove(tmp)
	}
	return err
}

// Clock is the time by the file system that holds the ledger, by whose clock its
// files have their times; the zero time when it cannot be told.
func (s *Store) Clock() time.Time {
	f, err := os.CreateTemp(s.home, ".new-*")
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	if _, err := f.Write([]byte{0}); err != nil {
		return time.Time{}
	}
	fi, err := f.Stat()
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// LastSign is when an attempt's runner was last heard of, by the file system's
// clock: its beat, or its claim when it has not beaten yet. It is not ok when
// there is neither.
func LastSign(attemptDir string) (at time.Time, ok bool) {
	for _, name := range []string{fileBeat, fileClaim} {
		f, err := disk.OpenRegular(filepath.Join(attemptDir, name)) // an open looks again, where a stat may not
		if err != nil {
			continue
		}
		fi, err := f.Stat()
		_ = f.Close()
		if err == nil {
			return fi.ModTime(), true
		}
	}
	return time.Time{}, false
}

// Sweep removes what killed processes have left, see [Store.List].
func (s *Store) Sweep() {
	_, _ = s.ids("\x00")
}

// Receive records a job that another machine has planned, as [Store.Create]
// does. When it stands here already, as it does when the answer to the first
// time was lost, that is no error.
func (s *Store) Receive(n New) (*jobs.Record, error) {
	if rec, err := s.Load(n.Spec.ID); err == nil {
		if a := rec.Current(); a == nil || a.Info.ID != n.Attempt.ID {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "another record of job " + jobs.Short(n.Spec.ID) + " stands in " + rec.Dir}
		}
		return rec, nil
	} else if jobs.KindOf(err) != jobs.KindNotFound && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s.Create(n)
}
