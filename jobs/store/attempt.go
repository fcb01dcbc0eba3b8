package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/jobs"
)

// SetSubmitted records that the scheduler took the attempt.
func SetSubmitted(attemptDir string, v jobs.Submitted) (bool, error) {
	return createJSON(attemptDir, fileSubmitted, v)
}

// SetClaim records that a runner begins the attempt, and returns whether this
// runner is the one.
func SetClaim(attemptDir string, v jobs.Claim) (bool, error) {
	return createJSON(attemptDir, fileClaim, v)
}

// SetExit records the runner's last word.
func SetExit(attemptDir string, v jobs.ExitRecord) (bool, error) {
	return createJSON(attemptDir, fileExit, v)
}

// SetVerdict records what a client concluded of an attempt that left no exit.
func SetVerdict(attemptDir string, v jobs.Verdict) (bool, error) {
	return createJSON(attemptDir, fileVerdict, v)
}

// SetTaken records that the branch was brought in by a client.
func SetTaken(attemptDir string, v jobs.Taken) (bool, error) {
	return createJSON(attemptDir, fileTaken, v)
}

// SetArgv records the final argv of the container.
func SetArgv(attemptDir string, argv []string) (bool, error) {
	return createJSON(attemptDir, fileArgv, argv)
}

// SetCancel records that somebody asked for the job's end. Asking twice is no
// error.
func SetCancel(jobDir string, v jobs.Cancel) (bool, error) {
	return createJSON(jobDir, fileCancel, v)
}

// Cancelled tells whether the job's end was asked for.
func Cancelled(jobDir string) bool {
	_, err := os.Stat(filepath.Join(jobDir, fileCancel))
	return err == nil
}

// HasExit tells whether the attempt's exit is recorded.
func HasExit(attemptDir string) bool {
	_, err := os.Stat(filepath.Join(attemptDir, fileExit))
	return err == nil
}

// ClaimStands tells whether the attempt's claim is still the given one. One
// that cannot be read stands: only what is seen tells that it was taken over.
func ClaimStands(attemptDir string, mine jobs.Claim) bool {
	path := filepath.Join(attemptDir, fileClaim)
	b, err := os.ReadFile(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	var got jobs.Claim
	if err := decode(path, b, &got, &got.Version); err != nil {
		return false
	}
	return got.NativeID == mine.NativeID && got.Restart == mine.Restart && got.Host == mine.Host && got.BootID == mine.BootID && got.PID == mine.PID
}

func createJSON(dir, name string, v any) (bool, error) {
	b, err := encode(v)
	if err != nil {
		return false, err
	}
	return CreateOnce(filepath.Join(dir, name), b)
}

// JobDirOf returns the job directory of an attempt directory.
func JobDirOf(attemptDir string) string {
	return filepath.Dir(filepath.Dir(filepath.Clean(attemptDir)))
}

// ScriptPath is where the attempt's job script stands.
func ScriptPath(attemptDir string) string { return filepath.Join(attemptDir, fileScript) }

// Prompt returns the job's prompt, or nil when it has none.
func Prompt(jobDir string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(jobDir, filePrompt))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// TakeSecrets reads the values that the submitter passed on from its own
// environment, as NAME=VALUE, and removes the file, so that they are on the
// disk only from submission to start.
func TakeSecrets(attemptDir string) ([]string, error) {
	path := filepath.Join(attemptDir, fileEnv)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	var out []string
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if len(kv) > 0 {
			out = append(out, string(kv))
		}
	}
	return out, nil
}

// DropSecrets removes the passed values of an attempt that will not start.
func DropSecrets(attemptDir string) { _ = os.Remove(filepath.Join(attemptDir, fileEnv)) }

// Beat writes the sign of life of an attempt's runner, its only writer. The
// content changes each time, so that a reader whose attributes are cached can
// tell a new beat from an old one.
func Beat(attemptDir string, n int, now time.Time) error {
	f, err := os.OpenFile(filepath.Join(attemptDir, fileBeat), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%010d %s\n", n, now.UTC().Format("2006-01-02T15:04:05.000Z")), 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Event is one line of events.jsonl.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Text  string    `json:"text,omitempty"`
}

// AppendEvent writes a line to the attempt's events; only its runner may.
func AppendEvent(attemptDir string, e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(attemptDir, FileEvents), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
