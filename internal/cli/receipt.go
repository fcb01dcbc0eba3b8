package cli

import (
	"slices"
	"strings"

	"berth/engine"
	"berth/jobs"
	"berth/jobs/store"
)

// receiptOf reads how the job's attempt was contained; nil is not known.
func receiptOf(v engine.View) (*jobs.Receipt, error) {
	a := v.Current()
	if a == nil {
		return nil, nil
	}
	return store.LoadReceipt(a.Dir)
}

// receiptRows are what people want of it; the rest is in the file.
func receiptRows(r *jobs.Receipt) (out [][2]string) {
	if r == nil {
		return nil
	}
	add := func(label, value string) { out = append(out, [2]string{label, value}) }
	if r.Level == "" {
		add("level", "none was reached: no container was open")
	} else {
		level := string(r.Level)
		if !r.Network.Open() {
			level += ", network " + r.Network.Mode
		}
		add("level", level)
	}
	for _, p := range r.Proof {
		add("proof", p)
	}
	if r.CheckedOver != "" {
		add("done", "checked over "+r.CheckedOver)
	}
	if r.Seen != nil && len(r.Seen.Abstract) > 0 {
		add("abstract sockets", strings.Join(r.Seen.Abstract, " "))
	}
	for _, l := range r.Limits {
		text := l.Name + " " + l.Value
		switch {
		case l.By == "" && l.Value != "none":
			text += ", not held"
		case l.By != "":
			text += ", held by " + l.By
		}
		if l.Advisory {
			text += ", advisory"
		}
		if l.Why != "" {
			text += ": " + l.Why
		}
		add("limit", text)
	}
	for _, m := range r.Mounts {
		text := m.Source + " at " + m.Destination
		if !m.Writable {
			text += ", read-only"
		}
		add("mount", text)
	}
	if len(r.Shares) > 0 {
		add("of the host", strings.Join(r.Shares, " ")+", read-only")
	}
	names := make([]string, 0, len(r.Versions))
	for name := range r.Versions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		add("version", name+" "+r.Versions[name])
	}
	if r.Kernel != "" {
		add("kernel", r.Kernel)
	}
	return out
}
