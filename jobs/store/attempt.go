package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
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

// SetDecision records what follows the attempt, and returns whether this
// decision is the one.
func SetDecision(attemptDir string, v jobs.Decision) (bool, error) {
	return createJSON(attemptDir, fileDecision, v)
}

// SetPromoted records that the copy of its overlay that the attempt worked on is
// the overlay now: what tells so when the runner is killed before its exit.
func SetPromoted(attemptDir string, use jobs.OverlayUse) error {
	_, err := createJSON(attemptDir, filePromoted, use)
	return err
}

// HasPromoted tells whether that is recorded.
func HasPromoted(attemptDir string) (bool, error) {
	_, err := os.Stat(filepath.Join(attemptDir, filePromoted))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SetCheckpoint records where another attempt can go on, in place of what the
// attempt's runner, its only writer, has recorded before.
func SetCheckpoint(attemptDir string, v jobs.Checkpoint) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	path := filepath.Join(attemptDir, fileCheckpoint)
	failpoint.File(path, "begin")
	tmp, err := disk.WriteTemp(attemptDir, b, 0o600)
	if err != nil {
		return err
	}
	failpoint.File(path, "synced")
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	failpoint.File(path, "renamed")
	return disk.SyncDir(attemptDir)
}

// SetTaken records that the branch was brought in by a client.
func SetTaken(attemptDir string, v jobs.Taken) (bool, error) {
	return createJSON(attemptDir, fileTaken, v)
}

// SetUndelivered records that the branch could not be brought in. The last word
// counts.
func SetUndelivered(attemptDir string, v jobs.Undelivered) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return replace(filepath.Join(attemptDir, fileUndeliver), b)
}

// SetCollected records the result that a client has made of a kept work tree.
func SetCollected(attemptDir string, v jobs.Collected) (bool, error) {
	return createJSON(attemptDir, fileCollected, v)
}

// SetReaper records that an attempt has a reaper.
func SetReaper(attemptDir string, v jobs.Submitted) (bool, error) {
	return createJSON(attemptDir, fileReaper, v)
}

// SetStandby records the standbys behind an attempt.
func SetStandby(attemptDir string, v jobs.Standby) (bool, error) {
	return createJSON(attemptDir, fileStandby, v)
}

// SetArgv records the final argv of the container.
func SetArgv(attemptDir string, argv []string) (bool, error) {
	return createJSON(attemptDir, fileArgv, argv)
}

// SetInside records the place that the task's command begins in.
func SetInside(attemptDir string, v jobs.Inside) (bool, error) {
	return createJSON(attemptDir, fileInside, v)
}

// SetChanges records what differs in the container from its image.
func SetChanges(attemptDir string, c jobs.ContainerChanges) (bool, error) {
	return createJSON(attemptDir, fileChanges, c)
}

// LoadChanges reads it; nil is that it is not recorded.
func LoadChanges(attemptDir string) (*jobs.ContainerChanges, error) {
	path := filepath.Join(attemptDir, fileChanges)
	b, err := readOptional(path)
	if b == nil || err != nil {
		return nil, err
	}
	c := &jobs.ContainerChanges{}
	return c, decode(path, b, c, &c.Version)
}

// LoadInside reads it; nil is that the command has not begun yet.
func LoadInside(attemptDir string) (*jobs.Inside, error) {
	path := filepath.Join(attemptDir, fileInside)
	b, err := readOptional(path)
	if b == nil || err != nil {
		return nil, err
	}
	v := &jobs.Inside{}
	return v, decode(path, b, v, &v.Version)
}

// SetReceipt records how the attempt is contained.
func SetReceipt(attemptDir string, v jobs.Receipt) (bool, error) {
	return createJSON(attemptDir, fileReceipt, v)
}

// LoadReceipt reads it; nil is that there is none: the attempt has not opened its
// container yet, never ran, or is of a berth that wrote none.
func LoadReceipt(attemptDir string) (*jobs.Receipt, error) {
	path := filepath.Join(attemptDir, fileReceipt)
	b, err := readOptional(path)
	if b == nil || err != nil {
		return nil, err
	}
	v := &jobs.Receipt{}
	return v, decode(path, b, v, &v.Version)
}

// SetCancel records that the job's end was requested. A second request is no
// error.
func SetCancel(jobDir string, v jobs.Cancel) (bool, error) {
	return createJSON(jobDir, fileCancel, v)
}

// Cancelled reports whether the job's end was requested.
func Cancelled(jobDir string) bool {
	_, err := os.Stat(filepath.Join(jobDir, fileCancel))
	return err == nil
}

// HasDecision tells whether it is decided what follows the attempt.
func HasDecision(attemptDir string) bool {
	_, err := os.Stat(filepath.Join(attemptDir, fileDecision))
	return err == nil
}

// HasExit tells whether the attempt's exit is recorded.
func HasExit(attemptDir string) bool {
	_, err := os.Stat(filepath.Join(attemptDir, fileExit))
	return err == nil
}

// ClaimOf reads the attempt's claim; without one it is the zero value.
func ClaimOf(attemptDir string) (c jobs.Claim, err error) {
	path := filepath.Join(attemptDir, fileClaim)
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = decode(path, b, &c, &c.Version)
	}
	return c, err
}

// ClaimStands tells whether the attempt's claim is still the given one. One
// that cannot be read stands: only what is seen tells that it was taken over.
func ClaimStands(attemptDir string, mine jobs.Claim) bool {
	path := filepath.Join(attemptDir, fileClaim)
	b, err := readRecord(path)
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

// HomeOf returns the state directory of a job directory.
func HomeOf(jobDir string) string { return filepath.Dir(filepath.Dir(filepath.Dir(jobDir))) }

// ScriptPath is where the attempt's job script stands.
func ScriptPath(attemptDir string) string { return filepath.Join(attemptDir, fileScript) }

// Prompt returns the job's prompt, or nil when it has none. One that is not so
// many bytes long is refused, unless that is 0: not known.
func Prompt(jobDir string, size int) ([]byte, error) {
	path := filepath.Join(jobDir, filePrompt)
	b, err := disk.ReadRegular(path, max(maxRecord, int64(size)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, disk.ErrNoRecord):
		return nil, damaged(path, err)
	}
	if err == nil && size > 0 && len(b) != size {
		return nil, damaged(path, fmt.Errorf("it has %d bytes, and had %d", len(b), size))
	}
	return b, err
}

// TaskSource reads the task file as it was submitted; nil is a command line.
func TaskSource(jobDir string) ([]byte, error) {
	b, err := disk.ReadRegular(filepath.Join(jobDir, fileTask), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// TakeSecrets reads the values that the submitter passed on from its own
// environment, as NAME=VALUE, and removes the file, so that they are on the
// disk only from submission to start; of a job that may be tried again until
// that is decided (keep). They stand with the first attempt. Where there is a
// file, it must have all these names.
func TakeSecrets(jobDir string, names []string, keep bool) ([]string, error) {
	path := filepath.Join(AttemptDir(jobDir, 1), fileEnv)
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit("secrets.read")
	out := parseValues(b)
	given := map[string]bool{}
	for _, kv := range out {
		name, _, _ := strings.Cut(kv, "=")
		given[name] = true
	}
	for _, name := range names {
		if !given[name] || b[len(b)-1] != 0 {
			return nil, damaged(path, errors.New("values are missing"))
		}
	}
	if !keep {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	failpoint.Hit("secrets.taken")
	return out, nil
}

// Values is the content of a file of passed values, NAME=VALUE each.
func Values(all []string) []byte {
	var b bytes.Buffer
	for _, kv := range all {
		b.WriteString(kv)
		b.WriteByte(0)
	}
	return b.Bytes()
}

func parseValues(b []byte) (all []string) {
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if len(kv) > 0 {
			all = append(all, string(kv))
		}
	}
	return all
}

// TakeValues reads such a file and removes it. One that is not there has none.
func TakeValues(path string) ([]string, error) {
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	return parseValues(b), err
}

// DropSecrets removes the passed values of a job of which no attempt will start.
func DropSecrets(jobDir string) {
	failpoint.Hit("secrets.drop")
	_ = os.Remove(filepath.Join(AttemptDir(jobDir, 1), fileEnv))
}

// Beat writes the sign of life of an attempt's runner, its only writer. The
// content changes each time, so that a reader whose attributes are cached can
// tell a new beat from an old one.
func Beat(attemptDir string, n int, now time.Time) error {
	f, err := os.OpenFile(filepath.Join(attemptDir, fileBeat), os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	failpoint.Hit("beat.opened")
	_, err = f.WriteAt(fmt.Appendf(nil, "%010d %s\n", n, now.UTC().Format(beatForm)), 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

const beatForm = "2006-01-02T15:04:05.000Z"

// BeatTime is when what [Beat] has written was, by its writer's clock.
func BeatTime(b []byte) (at time.Time, ok bool) {
	_, text, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	at, err := time.Parse(beatForm, text)
	return at, err == nil
}

// Event is one line of events.jsonl.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	Text  string    `json:"text,omitempty"`
}

// EventWaiting is the event of an attempt that waits for whoever has something
// that it needs; its text says for whom. The next event ends it.
const EventWaiting = "waiting"

// Events of an attempt whose place or work tree is made ready; the text says with what, and
// how far that is. The next event ends each.
const (
	EventPreparing = "preparing"
	EventCloning   = "cloning"
)

// LastEvent returns the last event of an attempt, or the zero value when there
// is none that can be read.
func LastEvent(attemptDir string) (last Event) {
	f, err := disk.OpenRegular(filepath.Join(attemptDir, FileEvents))
	if err != nil {
		return last
	}
	defer func() { _ = f.Close() }()
	const tail = 4096
	if fi, err := f.Stat(); err == nil && fi.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return last
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*tail))
	if err != nil {
		return last
	}
	for line := range strings.Lines(string(b)) {
		var e Event
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &e) == nil {
			last = e
		}
	}
	return last
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
