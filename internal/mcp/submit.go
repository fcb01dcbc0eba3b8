package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/config/task"
	"berth/jobs"
)

// Label is on each job that was submitted by a client of this protocol.
const Label = "mcp"

// keyPrefix keeps the keys of clients apart from those of people and their scripts.
const keyPrefix = "mcp/"

// A Submitter makes jobs of requests.
type Submitter struct {
	Engine *engine.Engine
	// Settle puts into a task what the configuration says and the task does not.
	Settle func(t *jobs.Task) (engine.Choice, []string, error)
}

// A Proposal is what a request would submit, as a person reads it.
type Proposal struct {
	Text string // lines in which each character is seen
	// Asks is that a person decides, whatever the configuration says: it is not contained,
	// or its own text takes something of the user's.
	Asks bool
	task jobs.Task
	c    engine.Choice
	plan plan
}

// A plan is what is compared of two jobs: what a person reads, and the record without what
// differs each time.
type plan struct{ text, spec string }

// Digest is the SHA-256 of what is shown, and of what it stands for.
func (p *Proposal) Digest() string {
	sum := sha256.Sum256([]byte(p.Text + "\x00" + p.plan.spec))
	return hex.EncodeToString(sum[:])
}

// Propose plans a request, and submits nothing.
func (s *Submitter) Propose(ctx context.Context, r *Request) (*Proposal, error) {
	t, err := task.Parse(r.File, []byte(r.Text))
	if err != nil {
		return nil, err
	}
	if r.Given {
		t.File = r.File
	}
	asks := takes(&t) // what the configuration adds is the user's own choice
	c, notes, err := s.Settle(&t)
	if err != nil {
		return nil, err
	}
	t.Labels = append(t.Labels, Label)
	c.NoChildImages = true // what a model names is not asked for before a person has seen it
	spec, err := s.Engine.Plan(ctx, t, c, false)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Asks: asks || spec.Level == jobs.LevelNone, task: t, c: c}
	if p.plan, err = s.plan(ctx, spec, t); err != nil {
		return nil, err
	}
	for _, n := range notes {
		p.Text += row("note:", n)
	}
	p.Text += p.plan.text
	return p, nil
}

// takes reports whether a task, as it was written, takes something of the user's or of the
// host's into its container: files, variables, keys, sockets, jobs of its own, or options
// that berth passes on unread.
func takes(t *jobs.Task) bool {
	passed := func(kv string) bool { return !strings.Contains(kv, "=") }
	d := t.Docker
	return len(t.Mounts) > 0 || slices.ContainsFunc(t.Env, passed) || len(t.Credentials) > 0 || len(t.HostSockets) > 0 || t.Submit != nil ||
		len(t.Slurm.Extra) > 0 || d != nil && len(d.Volumes)+len(d.ExtraArgs) > 0
}

// plan writes what a job is. Its id, which is another one each time, is zeros.
func (s *Submitter) plan(ctx context.Context, spec *jobs.Spec, t jobs.Task) (plan, error) {
	script, err := s.Engine.Render(ctx, spec)
	if err != nil {
		return plan{}, err
	}
	bare := *spec
	bare.ID, bare.Key, bare.Created = "", "", time.Time{}
	b, err := json.Marshal(bare)
	if err != nil {
		return plan{}, err
	}
	if w := spec.Workspace; w != nil {
		w := *w
		w.Branch = anonymous(spec.ID, w.Branch)
		bare.Workspace = &w
	}
	bare.Further = slices.Clone(spec.Further)
	for i := range bare.Further {
		bare.Further[i].Branch = anonymous(spec.ID, bare.Further[i].Branch)
	}
	return plan{text: shown(&bare, t, anonymous(spec.ID, script)), spec: anonymous(spec.ID, string(b))}, nil
}

// anonymous is a text with zeros in place of a job's id and its short forms.
func anonymous(id, text string) string {
	zeros := strings.NewReplacer("1", "0", "2", "0", "3", "0", "4", "0", "5", "0", "6", "0", "7", "0", "8", "0", "9", "0",
		"a", "0", "b", "0", "c", "0", "d", "0", "e", "0", "f", "0").Replace
	last, shard := id[max(0, len(id)-12):], "/"+id[max(0, len(id)-2):]+"/"
	return strings.NewReplacer(shard+id, "/00/"+zeros(id), id, zeros(id), last, zeros(last), jobs.Short(id), zeros(jobs.Short(id))).Replace(text)
}

// Made is the job of a request; nil is that there is none.
func (s *Submitter) Made(r *Request) (*jobs.Record, error) {
	if r.Answer == nil || !r.Answer.Confirmed {
		return nil, nil //nolint:nilnil // there is none, and nothing is wrong
	}
	return s.Engine.JobOfKey(keyPrefix + r.Key)
}

// Submit submits a proposal. When what it would submit is not what was shown, nothing is
// submitted.
func (s *Submitter) Submit(ctx context.Context, r *Request, p *Proposal) (*jobs.Record, error) {
	rec, _, err := s.Engine.SubmitOnce(ctx, keyPrefix+r.Key, p.task, p.c, func(c engine.Choice) (*jobs.Spec, error) {
		spec, err := s.Engine.Plan(ctx, p.task, c, false)
		if err != nil {
			return nil, err
		}
		now, err := s.plan(ctx, spec, p.task)
		if err != nil {
			return nil, err
		}
		if now != p.plan {
			return nil, changed(r)
		}
		return spec, nil
	})
	return rec, err
}

// changed is the error of a request whose job would be another one by now.
func changed(r *Request) error {
	return &jobs.Error{Kind: jobs.KindAgain, Msg: "the job of the request " + r.ID + " is not the one any more that was shown",
		Hint: "berth mcp confirm " + r.ID + " shows it"}
}

// textFile is the name that stands in errors of a task that came as a text; relative paths
// in it begin in dir.
func textFile(dir string) string { return filepath.Join(dir, "task") }
