package external

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/jobs"
)

// defaultLife bounds a sandbox where no lifetime is given.
const defaultLife = 24 * time.Hour

// Settle completes the record of a new environment: it refuses what the service
// does not have, and drops, with a note, limits that were not asked for. Life,
// Options and Allow of s.External are the caller's; the rest is made here.
func (b *Backend) Settle(ctx context.Context, s *jobs.EnvSpec) error {
	program, k, err := b.check(ctx)
	if err != nil {
		return err
	}
	owner, err := b.owner()
	if err != nil {
		return err
	}
	if s.External == nil {
		s.External = &jobs.ExternalSpec{}
	}
	x := s.External
	x.Program, x.Owner, s.Level = program, owner, jobs.Level(k.Level)
	if x.OneShot = k.Stream != nil && !*k.Stream; x.OneShot && !k.Exec {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + b.Word + " has neither streams nor commands of their own",
			Hint: "name another --backend"}
	}
	if x.From != "" {
		if err := b.recorded(s.Home, x.From); err != nil {
			return err
		}
		if !k.Snapshots {
			return b.noSnapshots()
		}
	}
	if err := b.settleWords(k, s); err != nil {
		return err
	}
	if err := b.settleLimits(k, s); err != nil {
		return err
	}
	most := time.Duration(k.MaxLifetimeSeconds) * time.Second
	switch {
	case x.Life < 0:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the time limit of a sandbox is negative"}
	case x.Life == 0 && (most == 0 || most > defaultLife):
		x.Life = defaultLife
	case x.Life == 0:
		x.Life = most
	case most != 0 && x.Life > most:
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("a sandbox of the backend %s lives for %v at most, and %v was asked for", b.Word, most, x.Life),
			Hint: "ask for less time"}
	}
	s.Notes = append(s.Notes, k.Notes...)
	if s.Level == jobs.LevelNone {
		s.Notes = append(s.Notes, "backend "+b.Word+": no containment; commands have all the rights of a user of this machine")
	}
	return nil
}

// settleWords looks at everything that is no amount.
func (b *Backend) settleWords(k *protocol.Checked, s *jobs.EnvSpec) error {
	no := func(what, hint string) error {
		if hint == "" {
			hint = "leave it out, or name another --backend"
		}
		return &jobs.Error{Kind: jobs.KindConfig, Msg: what + " is not available on the backend " + b.Word, Hint: hint}
	}
	network := cmp.Or(s.Reaches().Mode, protocol.NetworkOpen)
	open := len(k.Network) == 0 && network == protocol.NetworkOpen // it says nothing of it
	switch {
	case s.Image != "" && !k.Image:
		return no("an image", "")
	case s.GPU != "" && !slices.Contains(k.GPU, s.GPU):
		return no("the GPU "+s.GPU, "")
	case !open && !slices.Contains(k.Network, network):
		kinds := map[string]string{
			protocol.NetworkOpen:  "an open network",
			protocol.NetworkNone:  "a network that is shut off",
			protocol.NetworkAllow: "a network with a list of what is allowed",
		}
		return no(kinds[network], "it has: "+strings.Join(k.Network, ", "))
	case s.Persistent && !k.Persistent:
		// Persistent is the default, so it is dropped and not refused.
		s.Persistent = false
		s.Notes = append(s.Notes, "the backend "+b.Word+" keeps no files: they end with the environment")
	}
	for name := range s.External.Options {
		if !slices.Contains(k.Options, name) {
			has := "it has none"
			if len(k.Options) > 0 {
				has = "it has: " + strings.Join(k.Options, ", ")
			}
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the backend %s has no option %q", b.Word, name), Hint: has}
		}
	}
	return nil
}

// settleLimits drops or refuses what is not held.
func (b *Backend) settleLimits(k *protocol.Checked, s *jobs.EnvSpec) error {
	r := &s.Resources
	for _, l := range []struct {
		name, value string
		drop        func()
	}{
		{protocol.LimitCPUs, fmt.Sprint(r.CPUs), func() { r.CPUs = 0 }},
		{protocol.LimitMemory, r.Memory.String(), func() { r.Memory = 0 }},
		{protocol.LimitDisk, r.Disk.String(), func() { r.Disk = 0 }},
	} {
		wanted := map[string]bool{protocol.LimitCPUs: r.CPUs != 0, protocol.LimitMemory: r.Memory != 0, protocol.LimitDisk: r.Disk != 0}[l.name]
		if !wanted || slices.Contains(k.Limits, l.name) {
			continue
		}
		if s.Strict || !slices.Contains(s.Defaulted, l.name) {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + l.name + " " + l.value + " cannot be held by the backend " + b.Word,
				Hint: "leave " + l.name + " out"}
		}
		l.drop()
		s.Defaulted = slices.DeleteFunc(slices.Clone(s.Defaulted), func(d string) bool { return d == l.name })
		s.Notes = append(s.Notes, "the limit "+l.name+" "+l.value+" is not held by the backend "+b.Word)
	}
	return nil
}
