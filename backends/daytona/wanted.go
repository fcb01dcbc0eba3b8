package daytona

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/pattern"
)

const (
	maxDisk  = 10 // GiB, of a sandbox
	maxRules = 10 // of each kind, for the network
)

func unsupported(hint, format string, args ...any) *protocol.Error {
	return &protocol.Error{Kind: protocol.Unsupported, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// wanted is the request that makes the sandbox that berth wants, and which of
// its limits are not available.
func (s *settings) wanted(r *protocol.Request) (w *create, dropped, notes []string, err error) {
	p := r.Spec
	if p == nil || r.Name == "" || len(r.Tags) == 0 || p.LifetimeSeconds <= 0 {
		return nil, nil, nil, protocol.Errorf(protocol.Internal, "the request does not say what is wanted")
	}
	w = &create{Name: r.Name, Labels: r.Tags, Target: s.target, Stop: minutesOf(p.IdleSeconds), Archive: s.archive, Delete: s.deleted, TTL: s.ttl(p)}
	if w.Stop == 0 {
		w.Stop = idleAfter
	}
	if !p.Persistent {
		w.Delete = 0
	}
	if p.GPU != "" {
		return nil, nil, nil, unsupported("leave gpu out, or take another backend", "berth gives sandboxes of Daytona no GPU")
	}
	if err := network(w, p.Network); err != nil {
		return nil, nil, nil, err
	}
	if err := s.from(w, p); err != nil {
		return nil, nil, nil, err
	}
	dropped, notes, err = limits(w, p, w.Build != nil)
	return w, dropped, append(notes, s.notes...), err
}

func minutesOf(seconds int64) int { return int((seconds + 59) / 60) }

// ttl is the life of a sandbox in minutes. One that keeps files lives on, stopped,
// as long as those are kept, unless its user has said when it is to end.
func (s *settings) ttl(p *protocol.Spec) int {
	n := minutesOf(p.LifetimeSeconds)
	if p.Persistent && !s.strict && !p.WholeLifetime {
		n += s.deleted
	}
	return n
}

// reference is what may stand after FROM: no blank, no line end, no variable.
var reference = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$`)

// from is what the sandbox is made of: an image, a template, or what the
// organization has for its own.
func (s *settings) from(w *create, p *protocol.Spec) error {
	if p.From != "" {
		w.Snapshot = p.From
		return nil
	}
	if s.fixed != "" {
		w.Snapshot = s.fixed
		return nil
	}
	image := s.image
	if image == "" {
		image = p.Image
	}
	image = strings.TrimPrefix(image, "docker://")
	if image == "" {
		return nil
	}
	if !reference().MatchString(image) {
		return &protocol.Error{Kind: protocol.Input, Message: fmt.Sprintf("%q is no image that Daytona could take", image),
			Hint: "name one of a registry, for example debian:12; files of this machine cannot be used there"}
	}
	w.Build = &build{Dockerfile: "FROM " + image + "\n"}
	return nil
}

// limits settles them in whole GiB. Only what is made of an image can have any.
func limits(w *create, p *protocol.Spec, free bool) (dropped, notes []string, err error) {
	gib := func(mib int64) int { return int((mib + 1023) / 1024) }
	for _, l := range []struct {
		name string
		n    int
		to   *int
		most int
	}{
		{protocol.LimitCPUs, p.CPUs, &w.CPU, 0},
		{protocol.LimitMemory, gib(p.MemoryMiB), &w.Memory, 0},
		{protocol.LimitDisk, gib(p.DiskMiB), &w.Disk, maxDisk},
	} {
		soft := slices.Contains(p.Soft, l.name)
		switch {
		case l.n == 0:
		case !free && !soft:
			return nil, nil, unsupported("leave the limit out, or begin with an image",
				"a sandbox that is made from a template or a snapshot has the %s of that", l.name)
		case !free:
			dropped = append(dropped, l.name)
		case l.most > 0 && l.n > l.most && !soft:
			return nil, nil, unsupported(fmt.Sprintf("ask for at most %dGiB", l.most),
				"a sandbox of Daytona has at most %d GiB of disk, and %d are wanted", l.most, l.n)
		case l.most > 0 && l.n > l.most:
			*l.to = l.most
			notes = append(notes, fmt.Sprintf("the %s is %d GiB, the most that Daytona gives", l.name, l.most))
		default:
			*l.to = l.n
		}
	}
	return dropped, notes, nil
}

// domain is what the service takes: at most one *, in front.
var domain = pattern.Lazy(`^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$`)

// network settles what can be reached. A list that cannot be held is refused.
func network(w *create, n protocol.Network) error {
	switch n.Mode {
	case protocol.NetworkOpen, "":
		return nil
	case protocol.NetworkNone:
		w.NoNetwork = true
		return nil
	case protocol.NetworkAllow:
	default:
		return unsupported("", "the network %q", n.Mode)
	}
	var cidrs, names []string
	for _, a := range n.Allow {
		a = strings.ToLower(strings.TrimSpace(a))
		if prefix, err := netip.ParsePrefix(a); err == nil {
			if !prefix.Addr().Is4() {
				return unsupported("", "Daytona lets no IPv6 network through, as %s is one", a)
			}
			cidrs = append(cidrs, prefix.Masked().String())
		} else if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() {
			cidrs = append(cidrs, a+"/32")
		} else if domain().MatchString(a) {
			names = append(names, a)
		} else {
			return input("%q is neither a network (192.0.2.0/24) nor a name (example.com, *.example.com) that Daytona can let through", a)
		}
	}
	if len(cidrs) > maxRules || len(names) > maxRules {
		return unsupported("fewer entries, or wider ones",
			"Daytona takes at most %d networks and %d names, and there are %d and %d", maxRules, maxRules, len(cidrs), len(names))
	}
	if len(n.Allow) == 0 {
		w.NoNetwork = true
		return nil
	}
	w.CIDRs, w.Domains = strings.Join(cidrs, ","), strings.Join(names, ",")
	return nil
}

// sameNetwork tells whether a sandbox that stands is contained as is wanted.
func sameNetwork(b *sandbox, w *create) bool {
	list := func(s string) string {
		l := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(l)
		return strings.Join(l, ",")
	}
	if w.NoNetwork {
		return b.NoNetwork
	}
	return b.NoNetwork || list(b.CIDRs) == list(w.CIDRs) && list(b.Domains) == list(w.Domains)
}

// age is how long a sandbox has stood, in minutes, rounded up.
func (b *sandbox) age(now time.Time) int {
	if b.Created == nil || b.Created.After(now) {
		return 0
	}
	return minutesOf(int64(now.Sub(*b.Created)/time.Second) + 1)
}

// Prices of the list, in dollars an hour: https://www.daytona.io/pricing, as it was
// read on 7 May 2026. Those of CPU and memory were the same on 28 September. The
// first 5 GiB of an organization's disks cost nothing; that one sandbox has them is
// not known, so they are counted.
const (
	pricesOf  = "2026-05-07"
	perCPU    = 0.0504
	perMemory = 0.0162
	perDisk   = 0.000108
)

func (b *sandbox) cost() *protocol.Cost {
	if b.CPU == 0 {
		return nil
	}
	disk := b.Disk * perDisk
	return &protocol.Cost{PerHour: b.CPU*perCPU + b.Memory*perMemory + disk, StoppedPerHour: disk, Currency: "USD", AsOf: pricesOf}
}
