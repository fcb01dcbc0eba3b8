package session

import (
	"strings"

	"berth/internal/link/wire"
	"berth/jobs"
)

// Limits of what a guest may say. It is berth's own program, but it runs where
// the task does, and what it says goes into records and onto screens.
const (
	maxText   = 4 << 10
	maxRSS    = 1 << 50 // 1 PiB
	maxLeft   = 1 << 22 // PID_MAX_LIMIT of Linux
	maxCode   = 255
	maxSignal = 64
)

// text shortens a text.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "?")
}

// clampSeen bounds what a guest has found.
func clampSeen(s *jobs.Seen) *jobs.Seen {
	if s == nil {
		return nil
	}
	out := jobs.Seen{
		MountNamespace: text(s.MountNamespace), PIDNamespace: text(s.PIDNamespace),
		NetNamespace: text(s.NetNamespace), UserNamespace: text(s.UserNamespace),
		NoNewPrivs: s.NoNewPrivs, Filtered: s.Filtered,
		Capabilities: text(s.Capabilities), CommandCapabilities: text(s.CommandCapabilities),
		WritableCgroups: text(s.WritableCgroups),
		Looked:          textsOf(s.Looked), Abstract: textsOf(s.Abstract),
		Devices: textsOf(s.Devices), Tried: s.Tried, Reached: textsOf(s.Reached),
	}
	// None is left out: a stranger could make many, so that the one that matters
	// is not among the first.
	for _, k := range s.Sockets[:min(len(s.Sockets), jobs.MostSockets+1)] {
		out.Sockets = append(out.Sockets, jobs.Socket{Path: text(k.Path), What: text(k.What), Mount: text(k.Mount), Own: k.Own})
	}
	return &out
}

// clampExit makes an end one that can be. What cannot be is never made a
// success of.
func clampExit(m *wire.ExitMessage) {
	e := &m.Exit
	if e.Signal < 0 || e.Signal > maxSignal {
		e.Signal, e.Code = 0, maxCode
	}
	if e.Code < 0 || e.Code > maxCode {
		e.Code = maxCode
	}
	e.Error, m.Note = text(e.Error), text(m.Note)
	m.MaxRSS = min(max(m.MaxRSS, 0), jobs.Bytes(maxRSS))
	if l := m.Left; l != nil {
		l.Count = min(max(l.Count, 0), maxLeft)
		l.Names = textsOf(l.Names)
		for i, name := range l.Names {
			l.Names[i] = jobs.Printable(name)
		}
	}
}
