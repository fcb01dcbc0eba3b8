package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/network"
	"berth/internal/network/policy"
	"berth/internal/network/record"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// AllowNetwork adds words to what a job may reach, in this attempt and those after it, and
// returns the id of that act. A failure to bring it to the cluster of a job is a
// [jobs.KindInfra]; it is recorded then, and goes there with the next look.
func (e *Engine) AllowNetwork(ctx context.Context, v *View, words []string) (id string, err error) {
	if v.State.Final() {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "job " + jobs.Short(v.Spec.ID) + " has ended: it is " + string(v.State),
			Hint: "submit it again with --allow, or [network] allow in its task"}
	}
	act, err := e.addition(&v.Spec.Place, "job "+jobs.Short(v.Spec.ID), words)
	if err != nil {
		return "", err
	}
	if err := store.AddAllow(v.Dir, act); err != nil {
		return "", notAllowed(err)
	}
	return act.ID, e.syncCancel(ctx, v.Record)
}

func notAllowed(err error) error {
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: "record what is to be allowed", Err: err, Hint: jobs.HintOf(err)}
}

// addition is the record of words that are added, after a look at whether they would open
// anything.
func (e *Engine) addition(p *jobs.Place, what string, words []string) (a jobs.NetworkAddition, err error) {
	if err := addable(p, what, words); err != nil {
		return a, err
	}
	host, _ := os.Hostname()
	a = jobs.NetworkAddition{Version: 1, Time: e.Now().UTC(), By: identity().User, Host: host, Words: words}
	a.ID, err = ids.New()
	return a, err
}

// addable refuses words that open nothing in a place.
func addable(p *jobs.Place, what string, words []string) error {
	n := p.Reaches()
	refuse := func(kind jobs.Kind, msg, hint string) error {
		return &jobs.Error{Kind: kind, Msg: what + msg, Hint: hint}
	}
	task, phases, err := network.Policies(n)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: what, Err: err}
	}
	policies := []*policy.Policy{task}
	off, open := task.Mode == policy.None, task.Mode == policy.Open
	for _, phase := range phases {
		off, open = off && phase.Mode == policy.None, open && phase.Mode == policy.Open
		policies = append(policies, phase)
	}
	switch {
	case open:
		return refuse(jobs.KindUsage, " has the network open: nothing is refused", "")
	case off:
		return refuse(jobs.KindUsage, " has no network (mode none), and no rule opens one while it runs", "start it with --network allow --allow HOST")
	case !p.Can().Here():
		return refuse(jobs.KindConfig, " is on the backend "+p.Backend+", whose own list is settled when it begins", "start it again with --allow")
	}
	for _, w := range words {
		rules, err := policy.Parse(w)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Err: err, Hint: "berth network allow --help"}
		}
		for _, r := range rules {
			if why := stillRefused(policies, r); why != "" {
				return refuse(jobs.KindUsage, ": "+r.String()+" stays refused: "+why, "")
			}
		}
	}
	return nil
}

// stillRefused is why no policy allows a name that a rule names; "" is that one does, or
// that it cannot be told.
func stillRefused(policies []*policy.Policy, r policy.Rule) (why string) {
	name, below := r.Wildcard()
	if name == "" || below {
		return ""
	}
	for _, p := range policies {
		for _, port := range r.Ports() {
			d := p.With(r).Decide(policy.Request{Name: name, Port: port})
			if d.Allow {
				return ""
			}
			if why = d.Hint; d.Origin != "" {
				why += " (" + d.Origin + ")"
			}
		}
	}
	return why
}

// NetworkAdded waits until the supervisor of a job has taken up words that were added, at most
// for a while. It is not ok when that is not known by then; the error of words that do not
// hold says why.
func (e *Engine) NetworkAdded(ctx context.Context, v *View, id string) (ok bool, err error) {
	a := v.Current()
	if a == nil {
		return false, nil
	}
	return e.awaitAdded(ctx, id, v.Spec.Profile.Beat, v.Spec.Login != nil, func() (*record.File, error) {
		if err := e.syncCancel(ctx, v.Record); err != nil {
			return nil, err
		}
		return record.Read(filepath.Join(a.Dir, store.FileNetwork))
	})
}

// usualBeat is how often a supervisor looks where no profile says so, and beats are how many of
// them are waited for.
const (
	usualBeat = 10 * time.Second
	beats     = 3
)

// awaitAdded reads a file again and again, until the act is acknowledged in it.
func (e *Engine) awaitAdded(ctx context.Context, id string, beat time.Duration, far bool, read func() (*record.File, error)) (bool, error) {
	if beat <= 0 {
		beat = usualBeat
	}
	pause := 200 * time.Millisecond
	if far {
		pause = 2 * time.Second
	}
	for until := e.Now().Add(beats * beat); ; {
		f, err := read()
		var t *record.Taken
		if err == nil {
			t = f.Acknowledged(id)
		}
		switch {
		case err != nil:
			return false, err
		case t != nil && t.Trouble != "":
			return true, &jobs.Error{Kind: jobs.KindUsage, Msg: "it was not allowed: " + t.Trouble}
		case t != nil:
			return true, nil
		case e.Now().After(until):
			return false, nil
		}
		if err := e.Sleep(ctx, pause); err != nil {
			return false, err
		}
	}
}

// AllowNetwork adds words to what the environment may reach, from now on, and returns the id of that act.
func (v *Environment) AllowNetwork(ctx context.Context, words []string) (id string, err error) {
	act, err := v.e.addition(&v.Spec.Place, "the environment "+v.Spec.Name, words)
	if err != nil {
		return "", err
	}
	if v.Spec.Login == nil {
		if err := store.AddAllow(v.dir, act); err != nil {
			return "", notAllowed(err)
		}
		return act.ID, nil
	}
	p, err := v.place()
	if err != nil {
		return "", err
	}
	at, err := p.Ground(ctx)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(act)
	if err != nil {
		return "", err
	}
	dir, name := filepath.Split(filepath.Join(at.Dir, store.AllowName(act.ID)))
	return act.ID, p.Far.PutFiles(ctx, filepath.Clean(dir), map[string][]byte{name: append(data, '\n')})
}

// NetworkAdded waits as [Engine.NetworkAdded] does.
func (v *Environment) NetworkAdded(ctx context.Context, id string) (bool, error) {
	return v.e.awaitAdded(ctx, id, v.Spec.Profile.Beat, v.Spec.Login != nil, func() (*record.File, error) {
		b, err := v.NetworkRecord(ctx)
		if err != nil {
			return nil, err
		}
		return record.Parse(b)
	})
}

// NetworkRecord is what was recorded of the environment's network, one JSON object a line; of one on
// a cluster behind a login host the first MiB.
func (v *Environment) NetworkRecord(ctx context.Context) ([]byte, error) {
	b, err := v.networkRecord(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

func (v *Environment) networkRecord(ctx context.Context) ([]byte, error) {
	if v.Spec.Login == nil {
		return disk.ReadRegular(filepath.Join(v.dir, store.FileNetwork), 64<<20)
	}
	p, err := v.place()
	if err != nil {
		return nil, err
	}
	at, err := p.Ground(ctx)
	if err != nil {
		return nil, err
	}
	return p.Far.ReadFile(ctx, filepath.Join(at.Dir, store.FileNetwork))
}
