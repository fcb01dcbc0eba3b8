package container

import (
	"fmt"
	"os"
	"strings"

	"berth/internal/session"
	"berth/jobs"
)

// reachableError says what to do about a socket of the host's that a task could
// reach: who listens there does things for the user outside of the container.
func reachableError(e *session.ReachableError) error {
	s := e.Sockets[0]
	out := &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the container is not closed: it can reach the socket of %s, %s", s.What, s.Path)}
	if n := len(e.Sockets) - 1; n > 0 {
		out.Msg += fmt.Sprintf(", and %d more", n)
	}
	switch {
	case s.Abstract():
		out.Hint = "it has no path and can be reached from every container with the host's network: end who listens there (ss -xlp), or go without a network (--network none)"
	case s.Mount == "":
		out.Hint = "it stands in the image, or in the layer over it: take it out"
	default:
		out.Hint = "it came in with the mount " + s.Mount + ": leave that out of the task's mounts, or mount only what is needed of it; " +
			"if the task has no such mount, the site's container program adds it (\"bind path\" in apptainer.conf): ask the site to take it out"
	}
	return out
}

// closed tells why a container of level fs, whose guest has looked around, is
// none: it is in the same mount namespace as this process, and so has its files.
func closed(seen *jobs.Seen) error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if seen == nil || err != nil || seen.MountNamespace != own {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container program has made no container: its command sees the files of the host",
		Hint: "is what the PATH calls by its name the real one? berth doctor looks at it"}
}

// Proof says in words how the level of an open container was found out, from
// inside.
func Proof(g session.Guest, writable bool) (out []string) {
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
	if strings.Trim(s.Capabilities, "0") == "" && s.Capabilities != "" {
		out = append(out, "no capabilities")
	} else {
		out = append(out, "capabilities: "+s.Capabilities)
	}
	if writable {
		out = append(out, "the root was written to and is a layer of its own")
	}
	return append(out, fmt.Sprintf("no socket can be reached of %s", strings.Join(s.Looked, ", ")))
}
