package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/jobs"
)

// How often Slurm is asked. Its manuals beg not to run squeue and sacct in loops
// (squeue(1), "PERFORMANCE"), and sites punish it.
const (
	// often is the least time between two questions for the queue that a user waits
	// for, of all processes of a user on a host. Of others it is [Config.Poll]; rare is
	// the most, to which it grows for those that poll, while the answers are the same.
	often = 2 * time.Second
	rare  = 60 * time.Second
	// apart is between any two questions, so that there are less than two in a
	// second whatever is asked.
	apart = 510 * time.Millisecond
	// leave is how long Slurm is left alone after it was too busy to answer,
	// doubled for each time in a row up to rare.
	leave = often
	// worthIt is how much of that a caller waits who needs a fresh answer.
	worthIt = 10 * time.Second
)

// share is what the processes of a user on a host know together of one Slurm:
// the last answers about the queue, and when something may be asked again. It
// stands in a directory of this machine's own, behind flock(2); where that
// is not available, each process asks for itself.
type share struct {
	path   string // without a suffix
	poll   time.Duration
	now    func() time.Time
	sleep  func(context.Context, time.Duration) error
	jitter float64 // of the interval, so that hosts do not ask in step
	// longest is how long a process waits for the one that asks Slurm: longer
	// than a query takes. A stopped process (ctrl-Z) does not block the others for ever.
	longest time.Duration
}

// Files of a share, after its path. Who asks for the queue holds the first one
// meanwhile, so the others stand apart.
const (
	answers = ".json"
	turns   = ".turn" // when anything may be asked
	changes = ".changed"
	configs = ".config" // what scontrol says of the configuration
)

// configFor is how long the configuration counts as what it was.
const configFor = 10 * time.Minute

// shared is the file of the answers.
type shared struct {
	Version int               `json:"version"`
	Queues  map[string]answer `json:"queues"` // by cluster
}

// answer is the last one of squeue for one cluster.
type answer struct {
	Asked    time.Time     `json:"asked,omitzero"` // before the question
	Text     string        `json:"text,omitempty"`
	Interval time.Duration `json:"interval_ns,omitempty"`
	// Of the last failures in a row: how many, why, and until when no process asks.
	Failures int       `json:"failures,omitempty"`
	Why      string    `json:"why,omitempty"`
	Hint     string    `json:"hint,omitempty"`
	Until    time.Time `json:"until,omitzero"`
}

// newShare makes the share of what the configuration leads to; nil, which shares
// nothing, when there is no place for it.
func newShare(cfg Config) *share {
	if cfg.Shared == nil {
		return nil
	}
	dir, err := cfg.Shared()
	if err != nil {
		return nil
	}
	// Two configurations are two clusters, and so may two programs be; who has
	// none must not tell the others that Slurm is not installed.
	id := cfg.Login
	for _, v := range cfg.Environ {
		n, list, _ := strings.Cut(v, "=")
		switch {
		case n == "SLURM_CONF" || n == "SLURM_CONF_SERVER" || n == "SLURM_CLUSTERS":
			id += "\x00" + v
		case n == "PATH" && cfg.Login == "":
			id += "\x00" + programOn(list)
		}
	}
	sum := sha256.Sum256([]byte(id))
	host, _ := os.Hostname()
	h := fnv.New32a()
	_, _ = h.Write([]byte(host))
	return &share{path: filepath.Join(dir, "slurm-"+hex.EncodeToString(sum[:8])), poll: cfg.Poll, now: cfg.Now, sleep: cfg.Sleep,
		jitter:  1 - 0.3*float64(h.Sum32()%1000)/1000,
		longest: cfg.QueryTimeout + 2*worthIt}
}

// programOn is the squeue of a PATH, or "".
func programOn(list string) string {
	for _, dir := range filepath.SplitList(list) {
		path := filepath.Join(dir, "squeue")
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// hold locks a file and returns its content, and a function that writes new
// content and unlocks it; nil leaves it as it is. Where there is no lock, or the
// process that has it does not release it, the content is empty, and nothing is
// written.
func (s *share) hold(ctx context.Context, name string) (text []byte, release func([]byte), err error) {
	f, err := os.OpenFile(s.path+name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, func([]byte) {}, nil
	}
	for began := s.now(); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || s.now().Sub(began) > s.longest {
			_ = f.Close()
			return nil, func([]byte) {}, nil
		}
		if err := s.sleep(ctx, 20*time.Millisecond); err != nil {
			_ = f.Close()
			return nil, nil, err
		}
	}
	text, _ = io.ReadAll(f)
	return text, func(b []byte) {
		if b != nil {
			// Half of it after a kill or on a full disk is as good as nothing.
			if err := f.Truncate(0); err == nil {
				_, _ = f.WriteAt(b, 0)
			}
		}
		// A child that begins another program just now has the file open, too: its
		// end alone would not be the lock's.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}, nil
}

// turn waits until something may be asked. Who comes takes the next turn and
// waits for it without the lock.
func (s *share) turn(ctx context.Context) error {
	if s == nil {
		return nil
	}
	text, release, err := s.hold(ctx, turns)
	if err != nil {
		return err
	}
	now := s.now()
	at := now
	// A clock that was put back must not stop everything.
	if next, err := time.Parse(time.RFC3339Nano, string(text)); err == nil && next.After(now) && next.Sub(now) < rare {
		at = next
	}
	release([]byte(at.Add(apart).Format(time.RFC3339Nano)))
	if at.After(now) {
		return s.sleep(ctx, at.Sub(now))
	}
	return nil
}

// changed says that a job was submitted or ended from here: the answers so far
// do not know it, and the next ones will be different.
func (s *share) changed() {
	if s != nil {
		_ = os.WriteFile(s.path+changes, []byte(s.now().Format(time.RFC3339Nano)), 0o600)
	}
}

// lastChange is when a job was last submitted or ended from here.
func (s *share) lastChange() time.Time {
	b, _ := os.ReadFile(s.path + changes)
	t, _ := time.Parse(time.RFC3339Nano, string(b))
	if t.After(s.now()) {
		return time.Time{}
	}
	return t
}

// kept is an answer about what changes rarely, as it was at most a while ago, or
// "".
func (s *share) kept(file string, while time.Duration) string {
	if s == nil {
		return ""
	}
	fi, err := os.Stat(s.path + file)
	if err != nil {
		return ""
	}
	if age := s.now().Sub(fi.ModTime()); age < 0 || age > while {
		return ""
	}
	b, err := os.ReadFile(s.path + file)
	if err != nil || !strings.HasSuffix(string(b), "\n") { // half of it
		return ""
	}
	return string(b)
}

// keep is for the next who asks.
func (s *share) keep(file, text string) {
	if s == nil || !strings.HasSuffix(text, "\n") {
		return
	}
	tmp := fmt.Sprintf("%s%s.%d", s.path, file, os.Getpid())
	if os.WriteFile(tmp, []byte(text), 0o600) != nil || os.Rename(tmp, s.path+file) != nil {
		_ = os.Remove(tmp)
	}
}

// answered tells whether Slurm has answered a moment ago, so that it need not be
// asked whether it is there.
func (s *share) answered() bool {
	if s == nil {
		return false
	}
	b, err := os.ReadFile(s.path + answers) // one that is being written says no
	var sh shared
	if err != nil || json.Unmarshal(b, &sh) != nil {
		return false
	}
	for _, a := range sh.Queues {
		if age := s.now().Sub(a.Asked); a.Failures == 0 && age >= 0 && age < rare/2 {
			return true
		}
	}
	return false
}

// fresh is how new an answer must be.
type fresh int

const (
	// usual takes what is not older than the interval of now, nor than the last
	// change made from here.
	usual fresh = iota
	// look takes what is not older than the least time between two questions.
	look
	// recent is for who waits: the same with the shortest interval.
	recent
	// after takes only an answer to a query that begins from now on: the caller
	// acts on it.
	after
)

// squeue answers from the last answer or, when that is too old, by ask, which
// one process at a time does for all. When it was asked comes with it.
func (s *share) squeue(ctx context.Context, cluster string, want fresh, ask func(context.Context) (string, error)) (string, time.Time, error) {
	called := s.now()
	b, release, err := s.hold(ctx, answers)
	if err != nil {
		return "", time.Time{}, err
	}
	b, text, asked, err := s.answer(ctx, b, cluster, want, called, ask)
	release(b)
	return text, asked, err
}

// answer is squeue with the file held: b is what it was, and what it shall be.
func (s *share) answer(
	ctx context.Context, b []byte, cluster string, want fresh, called time.Time, ask func(context.Context) (string, error),
) (out []byte, text string, asked time.Time, err error) {
	var sh shared
	if json.Unmarshal(b, &sh) != nil || sh.Version != 1 || sh.Queues == nil {
		sh = shared{Version: 1, Queues: map[string]answer{}}
	}
	now := s.now()
	a := sh.Queues[cluster]
	if a.Asked.After(now) || a.Until.Sub(now) > 2*rare { // the clock was put back
		a = answer{}
	}
	if left := a.Until.Sub(now); left > 0 {
		if want != after || left > worthIt {
			return nil, "", time.Time{}, a.busy()
		}
		if err := s.sleep(ctx, left); err != nil {
			return nil, "", time.Time{}, err
		}
	}
	known := !a.Asked.IsZero() && a.Failures == 0
	unchanged := a.Asked.After(s.lastChange())
	age := now.Sub(a.Asked)
	switch {
	case !known:
	case want == after && a.Asked.After(called),
		want != after && unchanged && age < often,
		(want == usual || want == look) && unchanged && age < s.poll,
		want == usual && unchanged && age < a.Interval:
		return nil, a.Text, a.Asked, nil
	}
	if err := s.turn(ctx); err != nil {
		return nil, "", time.Time{}, err
	}
	asked = s.now()
	text, err = ask(ctx)
	next := answer{Asked: asked, Text: text, Interval: s.poll}
	switch {
	case err != nil && ctx.Err() != nil: // the caller gave up, and not Slurm
		return nil, "", time.Time{}, err
	case err != nil:
		next = a
		next.Failures, next.Why, next.Hint = a.Failures+1, err.Error(), jobs.HintOf(err)
		next.Until = s.now().Add(min(leave<<min(a.Failures, 6), rare))
	case known && a.Text == text && unchanged:
		next.Interval = min(a.Interval*3/2, max(s.poll, time.Duration(float64(rare)*s.jitter)))
	}
	sh.Queues[cluster] = next
	if out, merr := json.Marshal(sh); merr == nil {
		return out, text, asked, err
	}
	return nil, text, asked, err
}

// busy is the error while Slurm is left alone: what it said last.
func (a answer) busy() error {
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: a.Why, Hint: a.Hint}
	if a.Failures > 1 {
		e.Msg += "; it is asked again at " + a.Until.Format(time.RFC3339)
	}
	return e
}
