package apptainer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"berth/jobs"
	"berth/overlay"
)

// TestSnapshotError: what fails has its kind and a hint for environments; what a
// person has interrupted stays that.
func TestSnapshotError(t *testing.T) {
	s := &jobs.EnvSpec{Name: "e", Persistent: true, Home: t.TempDir()}
	held := 0
	at := jobs.SnapshotPlace{Dir: t.TempDir(), Hold: func() (func(), error) {
		held++
		return func() { held-- }, nil
	}}
	for _, c := range []struct {
		is   error
		kind jobs.Kind
		hint string
	}{
		{&jobs.Error{Kind: jobs.KindNotFound, Msg: "overlay " + dirOverlay + " has no snapshot x", Hint: "berth overlay show"}, jobs.KindNotFound, "berth env snapshots e; an environment that was never opened has no files"},
		{&jobs.Error{Kind: jobs.KindAgain, Msg: "in use"}, jobs.KindAgain, "berth env stop e"},
		{fmt.Errorf("copy: %w", context.Canceled), jobs.KindUnknown, ""},
	} {
		err := alone(s, "snapshot", at, func(*overlay.Set) error { return c.is })
		if jobs.KindOf(err) != c.kind || jobs.HintOf(err) != c.hint || errors.Is(err, context.Canceled) != errors.Is(c.is, context.Canceled) || held != 0 {
			t.Errorf("%v, hint %q, %d held", err, jobs.HintOf(err), held)
		}
	}
}
