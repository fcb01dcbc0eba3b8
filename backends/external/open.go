package external

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// sandboxName is what an environment's sandbox is called at the service.
func sandboxName(id, name string) string {
	slug := jobs.Slug(name)
	return "berth-" + strings.ReplaceAll(id, "-", "") + "-" + strings.TrimRight(slug[:min(len(slug), 20)], "-")
}

// tags are the proof that a sandbox is this environment's.
func tags(s *jobs.EnvSpec) map[string]string {
	t := map[string]string{protocol.TagVersion: "1", protocol.TagOwner: s.External.Owner, protocol.TagEnv: s.ID,
		protocol.TagName: tagValue(s.Name), protocol.TagUser: tagValue(s.User)}
	if s.External.Job != "" {
		t[protocol.TagJob] = s.External.Job
	}
	return t
}

// tagValue writes a word for people so that it may be a tag's value.
func tagValue(s string) string {
	if tagForm().MatchString(s) {
		return s
	}
	return jobs.Slug(s)
}

// request is what all requests about an environment have.
func request(verb string, s *jobs.EnvSpec, dir string) protocol.Request {
	r := protocol.Request{Verb: verb, Name: sandboxName(s.ID, s.Name), Tags: tags(s), Options: s.External.Options}
	if m, err := Load(dir); err == nil && m != nil {
		r.Ref = m.Ref
	}
	return r
}

// spec is the sandbox that is wanted.
func spec(s *jobs.EnvSpec) *protocol.Spec {
	network := protocol.Network{Mode: protocol.NetworkOpen}
	if n := s.Reaches(); !n.Open() {
		network = protocol.Network{Mode: n.Mode, Allow: n.List()}
	}
	mib := func(b jobs.Bytes) int64 { return int64((b + jobs.MiB - 1) / jobs.MiB) }
	out := &protocol.Spec{Image: s.Image, CPUs: s.Resources.CPUs, MemoryMiB: mib(s.Resources.Memory), DiskMiB: mib(s.Resources.Disk), GPU: s.GPU,
		Network: network, Persistent: s.Persistent,
		LifetimeSeconds: int64(s.External.Life / time.Second), WholeLifetime: s.DestroyAfter > 0, Soft: s.Defaulted}
	if s.External.From != "" {
		out.From = snapshotName(s.External.Owner, s.External.From)
	}
	if s.Lifetime > 0 {
		// The keeper ends it first; this is for when that was killed.
		out.IdleSeconds = int64((s.Lifetime + idleMargin) / time.Second)
	}
	return out
}

// idleMargin is how much longer a sandbox without a keeper may idle.
const idleMargin = 2 * time.Minute

// Open finds or makes the environment's sandbox, and says how its guest is
// reached: by one process of the program for as long as it is kept.
func (b *Backend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if a := at.Attempt; a != nil {
		keyed := &Backend{Word: b.Word, Builtin: b.Builtin, On: b.On, Home: b.Home, times: b.times,
			Environ: func() []string { return slices.Concat(b.environ(), a.Keys) }}
		return keyed.attempt(ctx, s, at)
	}
	return b.reach(ctx, s, at)
}

// destroyTime bounds what is done after an opening that failed.
const destroyTime = 2 * time.Minute

// attempt opens a sandbox for an attempt of a job. It ends with the attempt, or when
// its time is up.
func (b *Backend) attempt(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	op, err := b.reach(ctx, s, at)
	if err != nil {
		if k := jobs.KindOf(err); k == jobs.KindInfra || k == jobs.KindUnclear || ctx.Err() != nil {
			// It may have been made all the same.
			ctx, stop := context.WithTimeout(context.Background(), destroyTime)
			defer stop()
			if derr := b.Destroy(ctx, s, at.Dir, at.On); derr != nil {
				at.Attempt.Note("a sandbox of the backend " + s.Backend +
					" may be left until its time is up, and cost; berth env gc ends it: " + derr.Error())
			}
		}
		return nil, err
	}
	far := &jobs.Far{What: "the sandbox of the backend " + s.Backend, Until: "; it costs until it ends", Dir: path.Join(jobs.FarJobs, s.ID), Whole: true}
	if m, err := Load(at.Dir); err == nil && m != nil {
		far.What += " " + m.Ref
		if !m.Ends.IsZero() {
			far.Until += " at " + m.Ends.UTC().Format(time.RFC3339)
		}
	}
	far.Until += ", and berth env gc ends it now"
	end := op.End
	far.Remove = func(ctx context.Context, _ bool) error { return end(ctx) }
	op.Far, op.End, op.Dir = far, nil, ""
	return op, nil
}

// reach finds or makes the sandbox.
func (b *Backend) reach(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	c, err := b.of(s, at.On)
	if err != nil {
		return nil, err
	}
	guest, err := guestOf(at.Guest)
	if err != nil {
		return nil, err
	}
	o, told, err := c.open(ctx, s, at.Dir, guest, at.Progress)
	if err != nil {
		return nil, err
	}
	stream := request(protocol.VerbStream, s, at.Dir)
	stream.Berth, stream.Backend, stream.Argv = protocol.Version, s.Backend, []string{o.Guest, "guest"}
	file, err := writeRequest(at.Scratch, &stream)
	if err != nil {
		return nil, err
	}
	op := &jobs.Opening{
		Argv:    append(append([]string{}, c.program...), protocol.VerbStream, file),
		Env:     c.env,
		Home:    o.Home,
		Dir:     s.Dir,
		Level:   s.Level,
		Notes:   told.notes,
		Rebuilt: told.rebuilt,
		EndTime: c.times.verbs[protocol.VerbStop],
		Answer: func(out io.Reader) error {
			if err := readAnswer(out); err != nil && !errors.Is(err, io.EOF) {
				return c.told(protocol.VerbStream, err)
			} else if err != nil {
				return err
			}
			return nil
		},
	}
	if o.Level != "" {
		op.Level = jobs.Level(o.Level)
	}
	op.End = func(ctx context.Context) error { return c.end(ctx, s, at.Dir) }
	op.Remains = func(ctx context.Context, d *jobs.Destroyed) { b.remains(ctx, s, at.On, d) }
	return op, nil
}

// told is what people are to know of an opening.
type told struct {
	notes   []string
	rebuilt string // its files were lost: why
}

// open asks for the sandbox, and records it. Without a stream there is no guest.
func (c *caller) open(ctx context.Context, s *jobs.EnvSpec, dir string, guest *protocol.Guest, say func(string)) (*protocol.Opened, told, error) {
	last, err := Load(dir)
	if err != nil {
		return nil, told{}, err
	}
	r := request(protocol.VerbOpen, s, dir)
	r.Spec, r.Guest = spec(s), guest
	var o protocol.Opened
	if err := c.ask(ctx, r, say, &o); err != nil {
		return nil, told{}, err
	}
	err = c.checkOpened(&o, &r)
	if is := jobs.Level(o.Level); err == nil && is != "" && !contains(is, s.Level) {
		err = &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("the backend %s has made a sandbox of level %s, and had promised %s", s.Backend, is, s.Level),
			Hint: "berth doctor; or name another --backend"}
	}
	if err != nil {
		return nil, told{}, errors.Join(err, c.undo(s, dir, &o))
	}
	m := Made{Version: 1, Ref: o.Ref, Name: r.Name, Ends: o.Ends, Cost: o.Cost, Opened: time.Now().UTC(), Made: time.Now().UTC()}
	if last != nil && o.State == protocol.StateFound {
		m.Made = last.Made
	}
	if err := m.save(dir); err != nil {
		return nil, told{}, errors.Join(err, c.undo(s, dir, &o))
	}
	t := told{notes: o.Notes}
	for _, d := range o.Dropped {
		t.notes = append(t.notes, "the limit "+d+" is not held by the backend "+s.Backend)
	}
	switch {
	case o.State == protocol.StateRebuilt:
		t.rebuilt = "its sandbox was made again, and its files are gone"
		if o.Why != "" {
			t.rebuilt += ": " + o.Why
		}
	case o.State == protocol.StateMade && last != nil && s.Persistent:
		t.rebuilt = "its sandbox was gone from the service; its files are gone"
	}
	if note := endsNote(o.Ends, s.External.Life); note != "" {
		t.notes = append(t.notes, note)
	}
	return &o, t, nil
}

// contains tells whether a level contains no less than the one that was promised.
func contains(is, promised jobs.Level) bool {
	order := []jobs.Level{jobs.LevelNone, jobs.LevelFS, jobs.LevelEgress, jobs.LevelVM}
	at := func(l jobs.Level) int {
		for i, o := range order {
			if o == l {
				return i
			}
		}
		return 0
	}
	return at(is) >= at(promised)
}

// endsNote tells people when the service takes a sandbox away, where that is
// earlier than what was asked for.
func endsNote(ends time.Time, life time.Duration) string {
	if ends.IsZero() || time.Until(ends) > life-time.Minute {
		return ""
	}
	return "the service ends it at " + ends.UTC().Format(time.RFC3339)
}

// undoTime bounds what is done after an opening that failed on berth's side.
const undoTime = time.Minute

// undo takes back a sandbox that was just made and cannot be used.
func (c *caller) undo(s *jobs.EnvSpec, dir string, o *protocol.Opened) error {
	if o.State != protocol.StateMade || word("ref", o.Ref, true) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	r := request(protocol.VerbDestroy, s, dir)
	r.Ref = o.Ref
	var none struct{}
	return c.ask(ctx, r, nil, &none)
}

// Left tells whether the environment's sandbox may run, as far as that is
// recorded: its keeper has ended it, or whoever did so last.
func (b *Backend) Left(s *jobs.EnvSpec) bool {
	m, err := Load(filepath.Join(s.Home, "envs", s.Name))
	if m == nil && err == nil {
		return !s.External.OneShot // who was killed while it was made has recorded nothing
	}
	return err != nil || m.Stopped.IsZero()
}

// LeftOf tells the same of an attempt that has begun, and has the directory dir:
// whoever was killed while it was made has recorded nothing.
func (b *Backend) LeftOf(dir string, now time.Time) bool {
	m, err := Load(dir)
	return err != nil || m == nil || m.Stopped.IsZero() && (m.Ends.IsZero() || now.Before(m.Ends))
}

// End ends what the environment's sandbox costs, where no keeper runs; the files
// stay where they are to.
func (b *Backend) End(ctx context.Context, s *jobs.EnvSpec) error {
	c, err := b.of(s, b.On)
	if err != nil {
		return err
	}
	return c.end(ctx, s, filepath.Join(s.Home, "envs", s.Name))
}

// end ends what costs, when the keeper has gone, and records that.
func (c *caller) end(ctx context.Context, s *jobs.EnvSpec, dir string) error {
	verb := protocol.VerbDestroy
	if s.Persistent {
		verb = protocol.VerbStop
	}
	var none struct{}
	err := c.ask(ctx, request(verb, s, dir), nil, &none)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindOf(err), Msg: verb + " the sandbox of the environment " + s.Name, Err: err, Hint: jobs.HintOf(err)}
	}
	if m, err := Load(dir); err == nil && m != nil {
		m.Stopped = time.Now().UTC()
		_ = m.save(dir) // at worst it is stopped once more
	}
	return nil
}

// guestOf describes the guest program of this machine.
func guestOf(program string) (*protocol.Guest, error) {
	f, err := os.Open(program)
	if err == nil {
		defer f.Close()
		h := sha256.New()
		if _, err = io.Copy(h, f); err == nil {
			return &protocol.Guest{Path: program, SHA256: hex.EncodeToString(h.Sum(nil)), Arch: runtime.GOARCH}, nil
		}
	}
	return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the guest program", Err: err}
}

// Made is external.json in the environment's directory: the sandbox that was
// opened last.
type Made struct {
	Version int            `json:"version"`
	Ref     string         `json:"ref"`
	Name    string         `json:"name"` // at the service
	Made    time.Time      `json:"made"`
	Opened  time.Time      `json:"opened"`
	Stopped time.Time      `json:"stopped,omitzero"` // zero when it may run
	Ends    time.Time      `json:"ends,omitzero"`
	Cost    *protocol.Cost `json:"cost,omitempty"`
}

const fileMade = "external.json"

// Load reads the record of the sandbox of the environment in dir; nil is that
// there has been none.
func Load(dir string) (*Made, error) {
	file := filepath.Join(dir, fileMade)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var m Made
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read what is known of the sandbox", Err: err, Hint: "see " + file}
	}
	return &m, nil
}

func (m *Made) save(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.Replace(filepath.Join(dir, fileMade), append(b, '\n'), 0o600); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the sandbox", Err: err, Hint: "is there space left? df -h " + dir}
	}
	return nil
}
