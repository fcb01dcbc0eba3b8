package sitefile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
)

// refuse is the error of what a key forbids.
func (f *File) refuse(key, msg, hint string) error {
	where := f.Path
	for _, k := range f.keys {
		if k.Name == key {
			where += ":" + strconv.Itoa(k.Line)
		}
	}
	if f.Contact != "" {
		hint = strings.TrimPrefix(hint+"; questions: "+f.Contact, "; ")
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: msg + ": " + key + " of the site file " + where, Hint: hint}
}

// Here refuses a place whose commands, or whose supervisor, would run on this machine
// outside of the jobs of a cluster's scheduler.
func (f *File) Here(p *jobs.Place) error {
	if f == nil || !f.Elsewhere || p.Clustered() {
		return nil
	}
	return f.refuse("site.tasks_here", "no tasks run on this machine itself", "--scheduler "+cluster())
}

// cluster is the name of the scheduler that has jobs on other machines.
func cluster() string {
	all := jobs.Schedulers()
	return all[max(0, slices.IndexFunc(all, jobs.IsCluster))]
}

// order has the levels, lowest first.
var order = []jobs.Level{jobs.LevelNone, jobs.LevelFS, jobs.LevelEgress, jobs.LevelVM}

// Hold refuses what is not allowed of a settled place, of a job or of an environment.
// pulls is that its only command is berth's own, which fetches images.
func (f *File) Hold(p *jobs.Place, pulls bool) error {
	if f == nil {
		return nil
	}
	if err := f.Here(p); err != nil {
		return err
	}
	if !pulls {
		if err := f.contained(p); err != nil {
			return err
		}
	}
	if name, asked, most := p.Caps.Above(&f.Caps); name != "" {
		return f.refuse("caps."+name, fmt.Sprintf("the task has %s = %s, and one may have %s", name, asked, most),
			"ask for less: --"+strings.ReplaceAll(name, "_", "-"))
	}
	return f.most(p.Resources)
}

// contained refuses a place that is contained less than the site asks for.
func (f *File) contained(p *jobs.Place) error {
	mode := p.Reaches().Mode
	if mode == "" {
		mode = jobs.NetworkOpen
	}
	low := slices.Index(order, p.Level) < slices.Index(order, f.Level)
	if f.Level != "" && low || f.Level == jobs.LevelEgress && mode == jobs.NetworkOpen {
		hint := "name a backend that contains commands: --backend " + jobs.BackendOfClusters
		if !low || p.Level == jobs.LevelFS {
			hint = "--network none"
		}
		return f.refuse("site.level", fmt.Sprintf("the level of a place is %s at least, and this one's is %s", f.Level, p.Containment()), hint)
	}
	way, _, _ := strings.Cut(cmp.Or(p.Network.Via, jobs.ViaNode), ":")
	if f.Via != nil && (mode == jobs.NetworkAllow || !p.Network.Phases.Silent()) && !slices.Contains(f.Via, way) {
		return f.refuse("network.via", fmt.Sprintf("the way out %q is not allowed: it may be %s", way, strings.Join(f.Via, ", ")),
			"berth config set network.via "+f.Via[0])
	}
	return nil
}

// Bind puts the site's bounds on a place that is being planned: on its network, and as
// caps on a task with a credential for a model that has none of its own.
func (f *File) Bind(p *jobs.Place) {
	f.cap(p)
	if b, ok := f.bound(); ok && !bound(p, b) {
		p.Network = p.Network.Within(b)
	}
}

func (f *File) cap(p *jobs.Place) {
	if f != nil && p.Resources.Tasks <= 1 && slices.ContainsFunc(p.Credentials, func(c jobs.Credential) bool { return c.Model() }) {
		p.Caps.Under(&f.Caps, true, false)
	}
}

// bound is what the file says of networks; ok is that it says something.
func (f *File) bound() (b jobs.NetworkBound, ok bool) {
	if f == nil || f.Bound.Mode == "" {
		return b, false
	}
	b = f.Bound
	b.Origin = "site file " + f.Path
	return b, true
}

func bound(p *jobs.Place, b jobs.NetworkBound) bool {
	return slices.ContainsFunc(p.Network.Bounds, func(have jobs.NetworkBound) bool {
		return have.Origin == b.Origin && have.Mode == b.Mode && slices.Equal(have.Allow, b.Allow) &&
			slices.Equal(have.Deny, b.Deny) && slices.Equal(have.Opaque, b.Opaque)
	})
}

// HoldHere is Hold where a recorded place is about to be opened. One that was planned
// where another file holds, or none, is narrowed as it would have been there, where
// its supervisor can do that, and else refused.
func (f *File) HoldHere(p *jobs.Place, pulls bool) error {
	f.cap(p)
	if b, ok := f.bound(); ok && !pulls && !bound(p, b) && p.Reaches().Mode != jobs.NetworkNone {
		if !p.Can().Here() || p.Resources.Tasks > 1 {
			return f.refuse("network."+f.first("mode", "allow"), "it was planned where this bound of its network is not said",
				"--network none, or submit it on a machine that has the same file")
		}
		f.Bind(p)
		p.Level = p.Network.Level(p.Level)
	}
	return f.Hold(p, pulls)
}

// first is the one of the keys of [network] that the file sets.
func (f *File) first(names ...string) string {
	return names[max(0, slices.IndexFunc(names, func(n string) bool {
		return slices.ContainsFunc(f.keys, func(k Key) bool { return k.Name == "network."+n })
	}))]
}

// most refuses a job that asks for more than the site gives to one. What it does not
// ask for is the scheduler's to give.
func (f *File) most(r jobs.Resources) error {
	nodes := max(1, r.Nodes)
	for _, k := range []struct {
		key, flag  string
		asked      int64
		limit      int64
		text, most string
	}{
		{"max_time", "time", int64(r.Time), int64(f.Limits.Time), short(r.Time), short(f.Limits.Time)},
		{"max_cpus", "cpus", int64(r.CPUs) * int64(max(1, r.Tasks)), int64(f.Limits.CPUs), "", ""},
		{"max_memory", "memory", int64(r.Memory) * int64(nodes), int64(f.Limits.Memory),
			(r.Memory * jobs.Bytes(nodes)).String(), f.Limits.Memory.String()},
		{"max_gpus", "gpus", int64(gpus(r.GPUs) * nodes), int64(f.Limits.GPUs), "", ""},
	} {
		if k.limit == 0 || k.asked <= k.limit {
			continue
		}
		if k.text == "" {
			k.text, k.most = strconv.FormatInt(k.asked, 10), strconv.FormatInt(k.limit, 10)
		}
		return f.refuse("jobs."+k.key, fmt.Sprintf("the job asks for %s = %s, and one may have %s", k.flag, k.text, k.most), "ask for less: --"+k.flag)
	}
	return nil
}

// gpus is the number in "TYPE:2" or "2".
func gpus(text string) int {
	n, _ := strconv.Atoi(text[strings.LastIndexByte(text, ':')+1:])
	return n
}

// short writes a duration without the parts that are zero.
func short(d time.Duration) string {
	s := strings.TrimSuffix(d.String(), "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Submitted refuses one more job of a user who has so many that have not ended.
func (f *File) Submitted(have int) error {
	if f == nil || f.Limits.Submitted == 0 || have < f.Limits.Submitted {
		return nil
	}
	return f.refuse("jobs.max_submitted", fmt.Sprintf("%d of your jobs have not ended, and %d may be submitted at once", have, f.Limits.Submitted),
		"wait for some to end, or end them: berth ps; berth cancel ID")
}

// OtherReviews reports whether another account than the author's has to approve.
func (f *File) OtherReviews() bool { return f != nil && f.Review.Other }

// RefuseOwnReview is the error of a merge that only the author has approved.
func (f *File) RefuseOwnReview(msg, hint string) error {
	return f.refuse("review.by", msg+", and another account has to", hint)
}

// Confirms reports whether a person confirms each job that an agent submits. said is the
// word of the user's configuration, or "".
func (f *File) Confirms(said string) bool {
	if f != nil && (f.Confirm == ConfirmAlways || said == "") {
		said = f.Confirm
	}
	return said != ConfirmNever
}

// Waiting refuses a task that would make one more result, of a user of whose results so
// many wait for a verdict.
func (f *File) Waiting(have int) error {
	if f == nil || f.Review.MaxWaiting == 0 || have < f.Review.MaxWaiting {
		return nil
	}
	return f.refuse("review.max_waiting_reviews", fmt.Sprintf("%d results of your jobs wait for a review, and %d may", have, f.Review.MaxWaiting),
		"decide some of them first: berth review ls")
}

// Most bounds what a later attempt may ask for by what the site gives to one job.
func (f *File) Most(m jobs.Most) jobs.Most {
	if f == nil {
		return m
	}
	if l := f.Limits.Memory; l != 0 && (m.Memory == 0 || l < m.Memory) {
		m.Memory, m.MemoryWhy = l, "the site file "+f.Path
	}
	if l := f.Limits.Time; l != 0 && (m.Time == 0 || l < m.Time) {
		m.Time, m.TimeWhy = l, "the site file "+f.Path
	}
	return m
}
