package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	"berth/jobs"
)

// scanned is a record as its files hold it, not yet understood. The index
// keeps records in this form, so that it cannot say anything else than they.
type scanned struct {
	job, cancel []byte
	attempts    []scannedAttempt
}

type scannedAttempt struct {
	n     int
	files [len(attemptFiles)][]byte // nil is missing
	beat  time.Time
	// secrets tells that passed values are still there, see [DropSecrets].
	secrets bool
}

// attemptFiles are the files of an attempt that determine its state.
var attemptFiles = [...]string{
	fileAttempt, fileSubmitted, fileClaim, fileExit, fileVerdict, fileDecision, fileTaken,
	fileCheckpoint, fileReaper, fileUnfollow, fileStandby, fileUndeliver, fileCollected,
}

// Places in attemptFiles.
const (
	atAttempt = iota
	atSubmitted
	atClaim
	atExit
	atVerdict
	atDecision
	atTaken
	atCheckpoint
	atReaper
	atUnfollowed
	atStandby
	atUndelivered
	atCollected
)

func attemptName(n int) string { return fmt.Sprintf("%04d", n) }

// scan reads the files of the record in dir.
func scan(dir string) (*scanned, error) {
	s, err := scanFiles(dir)
	if err != nil || len(s.attempts) == 0 {
		if _, serr := os.Stat(filepath.Join(dir, fileJob)); errors.Is(serr, fs.ErrNotExist) {
			return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no job record in " + dir}
		}
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read a job record", Err: err}
	}
	if len(s.attempts) == 0 {
		return nil, damaged(filepath.Join(dir, dirAttempts), errors.New("it holds no attempt"))
	}
	return s, nil
}

func scanFiles(dir string) (*scanned, error) {
	s := &scanned{}
	var err error
	if s.job, err = readRecord(filepath.Join(dir, fileJob)); err != nil {
		return nil, err
	}
	if s.cancel, err = readOptional(filepath.Join(dir, fileCancel)); err != nil {
		return nil, err
	}
	names, err := readNames(filepath.Join(dir, dirAttempts))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || attemptName(n) != name {
			sweepTemp(filepath.Join(dir, dirAttempts), name)
			continue
		}
		a, err := scanAttempt(filepath.Join(dir, dirAttempts, name))
		if err != nil {
			return nil, err
		}
		if a.files[atAttempt] == nil {
			continue // being made
		}
		a.n = n
		s.attempts = append(s.attempts, a)
	}
	sort.Slice(s.attempts, func(i, j int) bool { return s.attempts[i].n < s.attempts[j].n })
	return s, nil
}

// extend reads the attempts after the last one, by their names, up to the number
// upTo. One that is not there was taken back.
func (s *scanned) extend(dir string, upTo int) error {
	for n := s.attempts[len(s.attempts)-1].n + 1; n <= upTo; n++ {
		a, err := scanAttempt(AttemptDir(dir, n))
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && a.files[atAttempt] == nil:
		case err != nil:
			return err
		default:
			a.n = n
			s.attempts = append(s.attempts, a)
		}
	}
	return nil
}

func scanAttempt(dir string) (scannedAttempt, error) {
	var a scannedAttempt
	// One listing instead of a failed open for each file that may exist: most
	// attempts have half of them, and on a network file system each miss is a
	// round trip.
	names, err := readNames(dir)
	if err != nil {
		return a, err
	}
	for _, name := range names {
		if name == fileBeat {
			fi, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				return a, err
			}
			a.beat = fi.ModTime()
			continue
		}
		a.secrets = a.secrets || name == fileEnv
		sweepTemp(dir, name)
		for i, want := range attemptFiles {
			if name != want {
				continue
			}
			if a.files[i], err = readRecord(filepath.Join(dir, name)); err != nil {
				return a, err
			}
			if a.files[i] == nil {
				a.files[i] = []byte{} // there, and empty
			}
		}
	}
	return a, nil
}

func readOptional(path string) ([]byte, error) {
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
