package container

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/apptainer/names"
	"berth/internal/link/session"
	"berth/internal/sys/private"
	"berth/jobs"
)

// judge says why a place is not closed: its guest could connect to a socket of
// the host's, where root, a daemon's user or this user listens. What a stranger
// listens on is left alone, or anybody on a machine could stop everybody's jobs
// there; so is what the configuration allows.
func (o *Options) judge(seen *jobs.Seen) error {
	if seen == nil || len(seen.Sockets) == 0 {
		return nil
	}
	if len(seen.Sockets) > jobs.MostSockets {
		if seen.Sockets[jobs.MostSockets].Abstract() { // anybody can have made them on this node
			return &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameNode,
				Msg: fmt.Sprintf("more than %d programs on this node listen on names of daemons or agents, "+
					"as %s: which of them are strangers' is not looked at",
					jobs.MostSockets, seen.Sockets[jobs.MostSockets].Path),
				Hint: "who listens there? ss -xlp"}
		}
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("the container is not closed: it can reach more than %d sockets that may be of the host's daemons or agents, as %s",
				jobs.MostSockets, seen.Sockets[0].Path),
			Hint: "who listens there? ss -xlp"}
	}
	var bad []jobs.Socket
	for _, s := range seen.Sockets {
		here := s.Path
		if !s.Abstract() {
			here = outside(s.Path, o.Binds)
		}
		who := listeners(here)
		if len(who) == 0 {
			who = owners(s, here)
		}
		strangers := len(who) > 0 && !slices.ContainsFunc(who, func(p peer) bool { return !p.stranger(s) })
		switch {
		case private.Allowed(o.Allow, s.What, s.Path, here):
			o.Log.Info("a socket of the host's can be reached, as the configuration allows", "socket", s.Path, "of", s.What)
		case o.Opening.Answer == nil && strangers:
			o.Log.Info("a socket can be reached; a stranger listens there", "socket", s.Path, "uid", who[0].uid)
		default:
			bad = append(bad, s)
		}
	}
	if len(bad) > 0 {
		return reachableError(bad)
	}
	return nil
}

// outside is what a path inside is called on this machine; "" is not known.
func outside(inside string, binds []jobs.Mount) string {
	out, best := "", -1
	for _, b := range binds {
		if d := path.Clean(b.Destination); private.Under(inside, d) && len(d) > best {
			rel, _ := filepath.Rel(d, inside)
			out, best = filepath.Join(b.Source, rel), len(d)
		}
	}
	return out
}

// reachableError says what to do about sockets of the host's that a task could
// reach: who listens there does things for the user outside of the container.
func reachableError(bad []jobs.Socket) error {
	s := bad[0]
	out := &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the container is not closed: it can reach the socket of %s, %s", s.What, s.Path)}
	if n := len(bad) - 1; n > 0 {
		out.Msg += fmt.Sprintf(", and %d more", n)
	}
	switch {
	case s.Abstract():
		out.Hint = "it has no path and can be reached from every container with the host's network: " +
			"end who listens there (ss -xlp), or go without a network (--network none)"
	case s.Mount == "":
		out.Hint = "it stands in the image, or in the layer over it: take it out"
	default:
		out.Hint = "it came in with the mount " + s.Mount + ": leave that out of the task's mounts, or mount only what is needed of it; " +
			"if the task has no such mount, the site's container program adds it (" + names.BindPathSetting + "): ask the site to take it out"
	}
	out.Hint += fmt.Sprintf("; if it is meant to be reached, your own configuration can say so: terminal.host_sockets = [%q]", s.What)
	return out
}

// closed tells why a container, whose guest has looked around, is none: it is in the
// same mount namespace as this process, and so has its files; or it has a network where
// it is to have none.
func closed(seen *jobs.Seen, op *jobs.Opening) error {
	if seen == nil {
		return nil
	}
	if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil && seen.MountNamespace == own {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container program has made no container: its command sees the files of the host",
			Hint: "is what the PATH calls by its name the real one? berth doctor looks at it"}
	}
	if op.Level != jobs.LevelEgress || op.Answer != nil { // a service's own network is its affair
		return nil
	}
	return shut(seen)
}

// shut refuses a place that is to have no network but a loopback and reaches more.
func shut(seen *jobs.Seen) error {
	found := strings.Join(seen.Devices, ", ")
	if own, err := os.Readlink("/proc/self/ns/net"); err == nil && seen.NetNamespace == own {
		found = "those of the host"
	}
	if found == "" && len(seen.Reached) > 0 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container is not closed: from inside it reaches " + strings.Join(seen.Reached, ", "),
			Hint: "the container program was told to give it no network: berth doctor looks at it; without that, --network open"}
	}
	if found == "" {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container is not closed: it has network devices (" + found + "), and is to have none",
		Hint: "the container program was told to make none: berth doctor looks at it; without that, --network open"}
}

// Proof says in words how the level of an open container was found out.
func (c *Container) Proof(writable bool) []string {
	out := seenInside(c.session.Guest(), writable)
	if words := c.answered.words(); words != "" {
		out = append(out, words)
	}
	return out
}

// seenInside is what the guest has found.
func seenInside(g session.Guest, writable bool) (out []string) {
	s := g.Seen
	if s == nil {
		return nil
	}
	own := func(file, is, what string) string {
		mine, _ := os.Readlink("/proc/self/ns/" + file)
		switch {
		case is == "":
			return what + ": not known"
		case is == mine:
			return what + ": the host's, " + is
		}
		return what + ": its own, " + is
	}
	out = append(out, own("mnt", s.MountNamespace, "mount namespace"))
	pids := own("pid", s.PIDNamespace, "PID namespace")
	if g.OwnPIDNamespace {
		pids += ", whose init is an ancestor of the guest"
	}
	out = append(out, pids, own("net", s.NetNamespace, "network"), own("user", s.UserNamespace, "user namespace"))
	if s.NoNewPrivs {
		out = append(out, "NoNewPrivs is set")
	} else {
		out = append(out, "NoNewPrivs is not set")
	}
	caps := s.Capabilities
	if s.CommandCapabilities != "" {
		caps = s.CommandCapabilities // the guest's own are more, and out of reach
	}
	if strings.Trim(caps, "0") == "" && caps != "" {
		out = append(out, "no capabilities")
	} else {
		out = append(out, "capabilities: "+caps)
	}
	if s.Filtered {
		out = append(out, "system calls are filtered: no kernel keyrings, no io_uring, none that Docker leaves to root of the host")
	} else {
		out = append(out, "system calls are not filtered")
	}
	if writable {
		out = append(out, "the root was written to and is a layer of its own")
	}
	if s.Tried {
		out = append(out, "connections to an address outside, to the metadata address, "+
			"to this machine's loopback and to an abstract socket of it were tried from inside, and failed")
	}
	return append(out, fmt.Sprintf("no socket can be reached of %s", strings.Join(s.Looked, ", ")))
}
