package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Host is the machine on which a scheduler's commands run, see backends/ssh.
type Host interface {
	jobs.Starter
	fmt.Stringer
	// Node runs berth's program there with these words, to its end.
	Node(ctx context.Context, words []string, stdin func() io.Reader, stdout io.Writer, progress func(string)) error
	// Local is the command of this machine that runs one there, over the
	// connection that stands.
	Local(c jobs.Cmd) (jobs.Cmd, error)
	// Connect makes sure that a connection stands, and may ask the person at
	// the terminal for what it takes.
	Connect(ctx context.Context, terminal bool) error
}

// Config is what a [Site] is made of.
type Config struct {
	Host Host
	// Scheduler makes the scheduler whose commands are started by on.
	Scheduler func(on jobs.Starter, where string) jobs.Scheduler
	Git       *workspace.Git
	Terminal  bool         // a person may be asked
	Progress  func(string) // gets a text on what takes long; nil reports nothing
}

// Site is a cluster that is reached through a login host. It is safe for
// concurrent use.
type Site struct {
	c     Config
	sched jobs.Scheduler

	mu    sync.Mutex
	asked bool // the person was, for the connection
	facts *Facts
	tips  map[string][]string // by the key of a copy
}

// New returns a site. It makes no connection yet.
func New(c Config) *Site {
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	s := &Site{c: c, tips: map[string][]string{}}
	s.sched = c.Scheduler(s, c.Host.String())
	return s
}

// String names the login host for people.
func (s *Site) String() string { return s.c.Host.String() }

// Scheduler is the one whose commands run there.
func (s *Site) Scheduler() jobs.Scheduler { return s.sched }

// Start starts a command there; the first one may ask the person.
func (s *Site) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	return s.c.Host.Start(ctx, c)
}

// connect lets a person answer, once in a process, what the login wants to
// know. Without a person everything is asked in batch mode.
func (s *Site) connect(ctx context.Context) error {
	if !s.c.Terminal {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked {
		return nil
	}
	if err := s.c.Host.Connect(ctx, true); err != nil {
		return err
	}
	s.asked = true
	return nil
}

// Times of one execution there. A link through which nothing comes any more is
// noticed by ssh itself, after 45 s.
const (
	shortTime = 2 * time.Minute
	roundTime = 15 * time.Minute
	longTime  = 2 * time.Hour // for what moves much
)

// node runs one of the far side's verbs.
func (s *Site) node(ctx context.Context, limit time.Duration, words []string, stdin func() io.Reader, stdout io.Writer) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s has not answered after %v", s, limit))
	defer stop()
	err := s.c.Host.Node(ctx, append([]string{Verb}, words...), stdin, stdout, s.c.Progress)
	var failed *run.Error
	if errors.As(err, &failed) {
		for line := range strings.SplitSeq(failed.Stderr, "\n") {
			if text, ok := strings.CutPrefix(line, faultPrefix); ok {
				var f fault
				if json.Unmarshal([]byte(text), &f) == nil && f.Msg != "" {
					e := f.err().(*jobs.Error) //nolint:errorlint // it is made so
					e.Msg = s.String() + ": " + e.Msg
					return e
				}
			}
		}
	}
	return err
}

func jsonInput(v any) func() io.Reader {
	b, err := json.Marshal(v)
	return func() io.Reader {
		if err != nil {
			return &broken{err}
		}
		return bytes.NewReader(append(b, '\n'))
	}
}

type broken struct{ err error }

func (b *broken) Read([]byte) (int, error) { return 0, b.err }

// maxAnswer bounds an answer that is kept in memory.
const maxAnswer = 1 << 20

// Survey asks what has to be known before a job is planned.
func (s *Site) Survey(ctx context.Context, q Question) (*Survey, error) {
	q.Version = version
	out := &bounded{most: maxAnswer}
	if err := s.node(ctx, shortTime, []string{verbSurvey}, jsonInput(q), out); err != nil {
		return nil, err
	}
	var g Survey
	if err := json.Unmarshal(out.b.Bytes(), &g); err != nil || g.Version != version {
		return nil, s.nonsense(err)
	}
	for what, v := range map[string]string{
		"state directory": g.Home,
		"program":         g.Node,
		"home":            g.Identity.Home,
		"user":            g.Identity.User,
		"shell":           g.Identity.Shell,
	} {
		if err := jobs.CheckText("the "+what+" on "+s.String(), v); err != nil {
			return nil, err
		}
	}
	if _, err := store.At(g.Home); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(g.Node) || q.Image != "" && g.Image == nil {
		return nil, s.nonsense(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := g.Facts
	s.facts = &f
	if q.Copy != "" {
		s.tips[q.Copy] = g.Tips
	}
	return &g, nil
}

// Facts are those of the last survey, or of a new one.
func (s *Site) Facts(ctx context.Context) (Facts, error) {
	s.mu.Lock()
	f := s.facts
	s.mu.Unlock()
	if f != nil {
		return *f, nil
	}
	g, err := s.Survey(ctx, Question{})
	if err != nil {
		return Facts{}, err
	}
	return g.Facts, nil
}

func (s *Site) nonsense(err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: s.String() + " gave an answer that makes no sense", Err: err,
		Hint: "does something print into every login there? ssh " + s.String() + " true"}
}

// Put records a job there: all that its submitter writes, in one execution, and
// what the copy of the repository lacks. When it returns an error of which
// [Never] tells so, nothing has arrived.
func (s *Site) Put(ctx context.Context, home string, n store.New, script string) error {
	p := parcel{Version: version, Home: home, Spec: n.Spec, Attempt: n.Attempt, Task: n.Task, Prompt: n.Prompt, Secrets: n.Secrets, Script: script}
	p.Spec.Login, p.Spec.LoginHome, p.Spec.ImageFrom, p.Spec.Target = nil, "", "", ""
	var pack *os.File
	if w := n.Spec.Workspace; w != nil {
		src := workspace.Source{Repo: w.GitDir, Top: w.Repo, Base: w.Base, Branch: w.BaseRef}
		key, err := workspace.CopyKey(n.Spec.Host, src)
		if err != nil {
			return &never{err}
		}
		there, err := copyDir(home, key)
		if err != nil {
			return &never{err}
		}
		p.Copy = &copyParcel{Key: key, Base: w.Base}
		if p.Copy.Parts, err = s.c.Git.Parts(src); err != nil {
			return &never{err}
		}
		if pack, err = s.pack(ctx, src, key); err != nil {
			return &never{err}
		}
		defer func() { _ = pack.Close() }()
		fi, err := pack.Stat()
		if err != nil {
			return &never{err}
		}
		p.Copy.Size = fi.Size()
		far := *w
		far.Repo, far.GitDir, far.Copy = "", there, true
		p.Spec.Workspace = &far
		if fi.Size() > 8<<20 {
			s.c.Progress(fmt.Sprintf("copying %v of the repository to %s", jobs.Bytes(fi.Size()), s))
		}
	}
	head, err := json.Marshal(p)
	if err != nil {
		return &never{err}
	}
	head = append(head, '\n')
	begun := false
	err = s.node(ctx, longTime, []string{verbPut}, func() io.Reader {
		begun = true
		if pack == nil {
			return bytes.NewReader(head)
		}
		return io.MultiReader(bytes.NewReader(head),
			&watched{ctx: ctx, r: io.NewSectionReader(pack, 0, p.Copy.Size), progress: s.telling("the repository", p.Copy.Size)})
	}, nil)
	if err != nil && !begun {
		err = &never{err}
	}
	return err
}

// never is an error before anything was sent.
type never struct{ err error }

func (n *never) Error() string { return n.err.Error() }
func (n *never) Unwrap() error { return n.err }

// Never tells whether nothing of a job has arrived.
func Never(err error) bool {
	var n *never
	return errors.As(err, &n)
}

// pack makes the pack of what is lacking there, in a file without a name.
func (s *Site) pack(ctx context.Context, src workspace.Source, key string) (*os.File, error) {
	s.mu.Lock()
	tips, known := s.tips[key]
	s.mu.Unlock()
	if !known {
		g, err := s.Survey(ctx, Question{Copy: key})
		if err != nil {
			return nil, err
		}
		tips = g.Tips
	}
	f, err := os.CreateTemp("", "berth-pack-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	if err := s.c.Git.Pack(ctx, src, tips, f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Remove takes the record of a job away there. One that is not there is no
// error.
func (s *Site) Remove(ctx context.Context, home, id string) error {
	if !jobs.ValidID(id) {
		return fmt.Errorf("%q is not a job id", id)
	}
	return s.node(ctx, shortTime, []string{verbRemove, "--home", home, "--job", id}, nil, nil)
}

// bounded keeps what is written to it, up to a limit.
type bounded struct {
	b    bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.b.Len()+len(p) > b.most {
		return 0, errors.New("the answer is too long")
	}
	return b.b.Write(p)
}

// plain takes out what a terminal would obey, and bounds a sentence.
func plain(s string) string {
	const most = 2000
	s = jobs.Printable(s)
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return s
}
