package cli

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"berth/backends/external"
	"berth/engine"
	"berth/jobs"
)

// sandbox is what is known of an environment's sandbox, or nil.
func sandbox(s jobs.EnvSpec) *external.Made {
	if s.External == nil {
		return nil
	}
	m, err := external.Load(filepath.Join(s.Home, "envs", s.Name))
	if err != nil {
		return nil // its next opening says why
	}
	return m
}

// sandboxLeft tells whether the sandbox of an environment without a keeper may
// run.
func (a *app) sandboxLeft(s engine.Shown) bool {
	m := sandbox(s.Spec)
	return m != nil && s.State == nil && m.Stopped.IsZero() && (m.Ends.IsZero() || a.now().Before(m.Ends))
}

// sandboxRows are what people want to know of it.
func (a *app) sandboxRows(s engine.Shown) (rows [][2]string) {
	m := sandbox(s.Spec)
	if m == nil {
		return nil
	}
	rows = append(rows, [2]string{"sandbox", m.Ref})
	if a.sandboxLeft(s) && !s.Spec.External.OneShot {
		rows = append(rows, [2]string{"its keeper", "is gone; the sandbox may run and cost until berth env stop " + s.Spec.Name})
	}
	if !m.Ends.IsZero() {
		rows = append(rows, [2]string{"its end", a.when(m.Ends)})
	}
	if c := m.Cost; c != nil {
		rows = append(rows, [2]string{"cost", costText(*m, s.State != nil || a.sandboxLeft(s), a.now())})
	}
	return rows
}

// costText is what a sandbox costs by the service's list prices, and since it was
// opened last, which is an estimate: berth does not see the bill.
func costText(m external.Made, running bool, now time.Time) string {
	c := m.Cost
	text := price(c.PerHour) + " " + c.Currency + " an hour while it runs"
	if running && now.After(m.Opened) {
		if sum := c.PerHour * now.Sub(m.Opened).Hours(); sum < 0.01 {
			text += ", less than 0.01 since it was opened"
		} else {
			text += fmt.Sprintf(", about %.2f since it was opened", sum)
		}
	}
	if c.StoppedPerHour > 0 {
		text += "; " + price(c.StoppedPerHour) + " an hour while it is stopped"
	}
	if c.AsOf != "" {
		text += " (prices of " + c.AsOf + ")"
	}
	return text
}

// price has four digits that count, and no exponent: one of an hour may be a
// small part of a cent.
func price(v float64) string {
	if short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64); err == nil {
		v = short
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
