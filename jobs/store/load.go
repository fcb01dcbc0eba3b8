package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// AttemptDir is the directory of a job's n-th attempt.
func AttemptDir(jobDir string, n int) string {
	return filepath.Join(jobDir, dirAttempts, attemptName(n))
}

// Load reads the record of one job.
func (s *Store) Load(id string) (*jobs.Record, error) {
	if !jobs.ValidID(id) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no job %q", id)}
	}
	return LoadDir(s.JobDir(id))
}

// LoadDir reads the record that stands in a job's directory.
func LoadDir(dir string) (*jobs.Record, error) {
	s, err := scan(dir)
	if err != nil {
		return nil, err
	}
	return s.record(dir)
}

// LoadOf reads the record of the job of the attempt in attemptDir, with all
// attempts up to that one. On a network file system the directory listing may be
// stale for up to a minute if another process on the same machine has just read
// it, but opening a file by its name finds it.
func LoadOf(attemptDir string) (*jobs.Record, error) {
	own, err := strconv.Atoi(filepath.Base(attemptDir))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no attempt in " + attemptDir, Err: err}
	}
	dir := JobDirOf(attemptDir)
	s, err := scan(dir)
	if err == nil {
		err = s.extend(dir, own)
	}
	if err != nil {
		return nil, err
	}
	return s.record(dir)
}

// LoadAttempt reads one attempt's files.
func LoadAttempt(dir string) (*jobs.Attempt, error) {
	s, err := scanAttempt(dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && s.files[atAttempt] == nil) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no attempt in " + dir, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return s.attempt(dir)
}

// LoadFresh reads one attempt's files for a decision that cannot be taken back.
// Network file systems show old listings and times for up to a minute; a
// change made here and an open of the file make them look again.
func LoadFresh(dir string) (*jobs.Attempt, error) {
	tmp, err := disk.WriteTemp(dir, nil, 0o600)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(tmp); err != nil {
		return nil, err
	}
	a, err := LoadAttempt(dir)
	if err != nil {
		return nil, err
	}
	if f, err := disk.OpenRegular(filepath.Join(dir, fileBeat)); err == nil {
		if fi, err := f.Stat(); err == nil {
			a.Beat = fi.ModTime()
		}
		_ = f.Close()
	}
	return a, nil
}

// record understands a scanned record.
func (s *scanned) record(dir string) (*jobs.Record, error) {
	r := &jobs.Record{Dir: dir}
	path := filepath.Join(dir, fileJob)
	if err := json.Unmarshal(s.job, &r.Spec); err != nil {
		return nil, damaged(path, err)
	}
	if r.Spec.Version > jobs.SpecVersion {
		return nil, newer(path, r.Spec.Version)
	}
	if r.Spec.ID != filepath.Base(dir) {
		return nil, damaged(path, fmt.Errorf("it is the record of job %q", r.Spec.ID))
	}
	if s.cancel != nil {
		r.Cancel = &jobs.Cancel{}
		if err := decode(filepath.Join(dir, fileCancel), s.cancel, r.Cancel, &r.Cancel.Version); err != nil {
			return nil, err
		}
	}
	r.Attempts = make([]jobs.Attempt, 0, len(s.attempts))
	for _, sa := range s.attempts {
		a, err := sa.attempt(AttemptDir(dir, sa.n))
		if err != nil {
			return nil, err
		}
		a.N = sa.n
		r.Attempts = append(r.Attempts, *a)
	}
	return r, nil
}

// attempt understands a scanned attempt.
func (s *scannedAttempt) attempt(dir string) (*jobs.Attempt, error) {
	a := &jobs.Attempt{Dir: dir, Beat: s.beat}
	for i, data := range s.files {
		if data == nil {
			continue
		}
		path := filepath.Join(dir, attemptFiles[i])
		var err error
		switch i {
		case atAttempt:
			err = decode(path, data, &a.Info, &a.Info.Version)
			a.N = a.Info.Number
		case atSubmitted:
			a.Submitted = &jobs.Submitted{}
			err = decode(path, data, a.Submitted, &a.Submitted.Version)
		case atClaim:
			a.Claim = &jobs.Claim{}
			err = decode(path, data, a.Claim, &a.Claim.Version)
		case atExit:
			a.Exit = &jobs.ExitRecord{}
			if err = decode(path, data, a.Exit, &a.Exit.Version); err == nil {
				err = checkFinal(path, a.Exit.State)
			}
		case atVerdict:
			a.Verdict = &jobs.Verdict{}
			if err = decode(path, data, a.Verdict, &a.Verdict.Version); err == nil {
				err = checkFinal(path, a.Verdict.State)
			}
		case atDecision:
			a.Decision = &jobs.Decision{}
			if err = decode(path, data, a.Decision, &a.Decision.Version); err == nil {
				err = checkDecision(path, a.Decision)
			}
		case atTaken:
			a.Taken = &jobs.Taken{}
			err = decode(path, data, a.Taken, &a.Taken.Version)
		case atCheckpoint:
			a.Checkpoint = &jobs.Checkpoint{}
			err = decode(path, data, a.Checkpoint, &a.Checkpoint.Version)
		case atReaper:
			a.Reaper = &jobs.Submitted{}
			err = decode(path, data, a.Reaper, &a.Reaper.Version)
		case atUnfollowed:
			a.Unfollowed = &jobs.Unfollowed{}
			err = decode(path, data, a.Unfollowed, &a.Unfollowed.Version)
		case atStandby:
			a.Standby = &jobs.Standby{}
			err = decode(path, data, a.Standby, &a.Standby.Version)
		case atUndelivered:
			a.Undelivered = &jobs.Undelivered{}
			err = decode(path, data, a.Undelivered, &a.Undelivered.Version)
		case atCollected:
			a.Collected = &jobs.Collected{}
			err = decode(path, data, a.Collected, &a.Collected.Version)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// fileVersion is the newest schema of the ledger's files besides job.json.
const fileVersion = 1

// decode reads one of the ledger's files into v, whose version is at version.
// A file of a newer schema is refused rather than half understood.
func decode(path string, data []byte, v any, version *int) error {
	if err := json.Unmarshal(data, v); err != nil {
		return damaged(path, err)
	}
	if *version > fileVersion {
		return newer(path, *version)
	}
	return nil
}

// checkFinal refuses a last word that is none: who waits would wait forever.
func checkFinal(path string, state jobs.State) error {
	if !state.Final() {
		return damaged(path, fmt.Errorf("%q is not a final state", state))
	}
	return nil
}

// checkDecision refuses a decision that does not say what follows.
func checkDecision(path string, d *jobs.Decision) error {
	switch d.Verb {
	case jobs.VerbAccept:
		if x := d.Exit; x != nil { // a client may record it unchanged
			if x.Version > fileVersion {
				return newer(path, x.Version)
			}
			if err := checkFinal(path, x.State); err != nil {
				return err
			}
		}
		return checkFinal(path, d.State)
	case jobs.VerbRetry:
		return nil
	}
	return damaged(path, fmt.Errorf("%q is not what can follow an attempt", d.Verb))
}

func damaged(path string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "the ledger's file " + path + " cannot be read", Err: err,
		Hint: "the files are written once and whole, so the disk failed or another program changed it: restore it, or move the job's directory away"}
}

func newer(path string, version int) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s was written by a newer berth (schema %d)", path, version),
		Hint: "use that version of berth"}
}
