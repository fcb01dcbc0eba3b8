package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"berth/engine"
	"berth/jobs"
)

// printReport shows what a job did.
func (a *app) printReport(ctx context.Context, v engine.View) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	r, err := e.Report(ctx, v)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"report": r})
	}
	rows := [][2]string{{"job", fmt.Sprintf("%s, attempt %d: %s", jobs.Short(r.Job), r.Attempt, r.State)}}
	for _, s := range r.Suspicious {
		rows = append(rows, [2]string{"suspicious", s.Kind + ": " + s.Where + " (" + s.Why + ")"})
	}
	if len(r.Suspicious) == 0 {
		rows = append(rows, [2]string{"suspicious", "nothing of what is looked for"})
	}
	for _, part := range []struct {
		label string
		list  []string
	}{{"created", r.Created}, {"changed", r.Changed}, {"deleted", r.Deleted}, {"artifact", r.Artifacts},
		{"container", r.Container}, {"ran", r.Ran}, {"left running", r.LeftRunning}} {
		for _, text := range part.list {
			rows = append(rows, [2]string{part.label, text})
		}
	}
	for _, n := range r.Reached {
		rows = append(rows,
			[2]string{"reached", fmt.Sprintf("%s, %s, %s up, %s down", n.Host(), jobs.Plural(n.Count, "connection"), n.Up.Rough(), n.Down.Rough())})
	}
	for _, n := range r.Refused {
		rows = append(rows, [2]string{"refused", fmt.Sprintf("%s, %s", n.Host(), jobs.Plural(n.Count, "time"))})
	}
	for _, what := range slices.Sorted(maps.Keys(r.More)) {
		rows = append(rows, [2]string{"more", fmt.Sprintf("%s: %d", what, r.More[what])})
	}
	for _, text := range r.Unknown {
		rows = append(rows, [2]string{"not known", text})
	}
	return a.rows(rows)
}
