package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	"berth/internal/images"
	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// maxKey is how long an idempotency key may be, in bytes.
const maxKey = 512

// SubmitOnce plans and submits a task under an idempotency key of the caller. A
// second submission of the same task under the same key, later or at the same time,
// returns the same job, and made is false. The key is recorded with the job's id
// before the job is, so that the next call with the key completes a submission that
// was killed in between. The same key with another task is an error, unless the
// first submission created no job. plan is called only by the call that creates the
// job, with the choice that names its id.
func (e *Engine) SubmitOnce(
	ctx context.Context, key string, t jobs.Task, c Choice, plan func(Choice) (*jobs.Spec, error),
) (rec *jobs.Record, made bool, err error) {
	if strings.TrimSpace(key) == "" || len(key) > maxKey {
		return nil, false, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the idempotency key has %d bytes", len(key)),
			Hint: fmt.Sprintf("give one of 1 to %d bytes, not only blanks: a fresh UUID, "+
				"or what names this submission in your own records", maxKey)}
	}
	parts, err := partsOf(t)
	if err != nil {
		return nil, false, err
	}
	o := &once{Engine: e, key: key, hash: store.KeyHash(key), parts: parts}
	if o.dir, err = e.Store.MakeKeyDir(o.hash); err != nil {
		return nil, false, err
	}
	for {
		if rec, err := o.there(); rec != nil || err != nil {
			if err == nil {
				e.guardLeft([]*jobs.Record{rec})
			}
			return rec, false, err
		}
		release, err := o.hold(ctx)
		var held *lease.HeldError
		switch {
		case ctx.Err() != nil:
			return nil, false, ctx.Err()
		case errors.As(err, &held) || jobs.KindOf(err) == jobs.KindAgain:
			continue
		case err != nil:
			return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "hold the idempotency key", Err: err}
		}
		rec, made, err = o.submit(ctx, t, c, plan)
		return rec, made, errors.Join(err, release())
	}
}

// JobOfKey returns the job that was submitted under an idempotency key; nil is that none
// was, or that its submission has not come to its end.
func (e *Engine) JobOfKey(key string) (*jobs.Record, error) {
	o := &once{Engine: e, dir: e.Store.KeyDir(store.KeyHash(key))}
	_, rec, err := o.recorded()
	if rec == nil || err != nil || !given(rec) {
		return nil, err
	}
	return rec, nil
}

// once is a key and what is asked for under it.
type once struct {
	*Engine
	key, hash, dir string
	parts          map[string]string
	stands         func() bool // reports that this process still holds the key
}

// recorded reads the key, and the job that it names if that is there.
func (o *once) recorded() (*store.Key, *jobs.Record, error) {
	k, err := store.LoadKey(o.dir)
	if k == nil || err != nil {
		return nil, nil, err
	}
	rec, err := o.Store.Load(k.Job)
	if err != nil && store.Missing(err) {
		return k, nil, nil
	}
	return k, rec, err
}

// there returns the key's job, once it is in its scheduler's hands.
func (o *once) there() (*jobs.Record, error) {
	k, rec, err := o.recorded()
	if rec == nil || err != nil {
		return nil, err
	}
	if err := o.same(k); err != nil {
		return nil, err
	}
	if !given(rec) {
		return nil, nil
	}
	return rec, nil
}

// given tells whether a scheduler has had the job.
func given(r *jobs.Record) bool {
	a := r.Current()
	return len(r.Attempts) > 1 || a != nil && (a.Submitted != nil || a.Claim != nil || a.Over())
}

// submit creates the key's job, or submits a recorded one to its scheduler. The
// caller holds the key.
func (o *once) submit(ctx context.Context, t jobs.Task, c Choice, plan func(Choice) (*jobs.Spec, error)) (*jobs.Record, bool, error) {
	k, rec, err := o.recorded()
	if err != nil {
		return nil, false, err
	}
	if rec != nil {
		if err := o.same(k); err != nil || given(rec) {
			return rec, false, err
		}
		rec, err = o.resume(ctx, rec, t)
		return rec, false, err
	}
	if k != nil && o.same(k) != nil {
		// The earlier submission created no job, so no caller has its id.
		if err := store.DropKey(o.dir); err != nil {
			return nil, false, err
		}
		k = nil
	}
	if k == nil {
		k = &store.Key{Parts: o.parts, Time: o.Now().UTC()}
		if k.Job, err = ids.New(); err != nil {
			return nil, false, err
		}
	}
	c.ID = k.Job
	s, err := plan(c)
	if err != nil {
		return nil, false, err
	}
	s.Key = o.hash
	if !o.stands() {
		return nil, false, &jobs.Error{Kind: jobs.KindAgain,
			Msg:  "another process has taken over the idempotency key, because this one was silent for long",
			Hint: "do the same again"}
	}
	if _, err := store.SetKey(o.dir, *k); err != nil {
		return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the idempotency key", Err: err}
	}
	rec, err = o.Submit(ctx, s, t)
	return rec, true, err
}

// resume gives a job to its scheduler whose submitter was killed before it had
// an answer. It is looked up by its name first, for as long as an unclear
// submission is; the attempt and its script stay the same, so that of two that
// arrive after all one is held back by the other's name, and one claims it.
func (o *once) resume(ctx context.Context, rec *jobs.Record, t jobs.Task) (*jobs.Record, error) {
	a := rec.Current()
	for _, name := range rec.Spec.EnvNames {
		if _, ok := o.Getenv(name); !ok && rec.Spec.Login != nil {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the task takes " + name + " from your environment, where it is not set",
				Hint: "export " + name + "=..."}
		}
	}
	of, err := o.prepare(ctx, &rec.Spec, t, a.Info)
	if err != nil {
		return nil, err
	}
	script, err := os.ReadFile(store.ScriptPath(a.Dir))
	if err != nil {
		return nil, err
	}
	of.script = string(script)
	h, err := o.resolveUnclear(ctx, of.sc, a.Info.Name, errors.New("whoever submitted it was ended before it had an answer"))
	switch {
	case err == nil:
		sub := jobs.Submitted{Version: 1, Handle: h, Time: o.Now().UTC()}
		if _, err := store.SetSubmitted(a.Dir, sub); err != nil {
			return nil, err
		}
		a.Submitted = &sub
		o.guardAside(ctx, rec)
		return rec, nil
	case jobs.KindOf(err) != jobs.KindAgain:
		return nil, &jobs.Error{Kind: jobs.KindUnclear,
			Msg: "job " + jobs.Short(rec.Spec.ID) + " of this idempotency key may or may not have been submitted",
			Err: err, Hint: "do the same again when the scheduler answers"}
	}
	// Another process may have submitted or ended it meanwhile.
	if rec, err = o.Store.Load(rec.Spec.ID); err != nil || given(rec) {
		return rec, err
	}
	return o.Engine.submit(ctx, of, rec)
}

// same refuses a key that was used for another task.
func (o *once) same(k *store.Key) error {
	var differ []string
	_, terminal := k.Parts["terminal"]
	_, place := k.Parts["place"]
	theirs := func(name string) bool { // of keys in which a place had other parts
		return (terminal || place) && (name == "terminal" || strings.HasPrefix(name+".", ofPlace))
	}
	for name := range k.Parts {
		if theirs(name) {
			continue
		}
		if k.Parts[name] != o.parts[name] {
			differ = append(differ, name)
		}
	}
	for name := range o.parts {
		if _, ok := k.Parts[name]; !ok && !theirs(name) {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	sort.Strings(differ)
	short := jobs.Short(k.Job)
	return &jobs.Error{Kind: jobs.KindUsage,
		Msg: fmt.Sprintf("the idempotency key %q is that of job %s, of %s, which differs in: %s (task %s there, %s here)",
			o.key, short, k.Time.Format(time.RFC3339), strings.Join(differ, ", "), hashOf(k.Parts), hashOf(o.parts)),
		Hint: "give another task another key; berth status " + short + " shows that job, and berth rm " + short + " removes it with its key"}
}

// ofPlace begins the names of the parts that say where a task runs.
const ofPlace = "place."

// partsOf hashes what is asked for, part by part: what a repository or a
// registry holds at the moment is no part of it.
func partsOf(t jobs.Task) (map[string]string, error) {
	t.Source, t.File = nil, ""
	if t.Workspace != nil {
		w := *t.Workspace
		w.Repo = absolute(w.Repo)
		t.Workspace = &w
	}
	t.Further = slices.Clone(t.Further)
	for i := range t.Further {
		t.Further[i].Repo = absolute(t.Further[i].Repo)
	}
	if t.Image != "" && !images.IsReference(t.Image) {
		t.Image, t.Reference = absolute(t.Image), ""
	}
	t.Profile = jobs.Profile{Name: t.Profile.Name} // what its file says is no part either
	parts := map[string]string{}
	add := func(name string, v reflect.Value) error {
		if v.IsZero() {
			return nil
		}
		b, err := json.Marshal(v.Interface())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		parts[name] = hex.EncodeToString(sum[:8])
		return nil
	}
	task := reflect.ValueOf(t)
	for _, f := range reflect.VisibleFields(task.Type()) {
		name := strings.ToLower(f.Name)
		switch {
		case f.Anonymous:
			continue
		case len(f.Index) > 1 && name != "resources" && name != "slurm":
			name = ofPlace + name
		}
		if err := add(name, task.FieldByIndex(f.Index)); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// hashOf is one short hash of all parts.
func hashOf(parts map[string]string) string {
	b, _ := json.Marshal(parts) // a map of strings, sorted by its keys
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:6])
}
