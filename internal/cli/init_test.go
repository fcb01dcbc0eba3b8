package cli

import (
	"testing"

	"berth/internal/config/task"
)

// The example of berth init is what berth task lint wants.
func TestExampleTask(t *testing.T) {
	if l := task.Lint("example.md", exampleTask); len(l.Found) > 0 {
		t.Errorf("%+v", l.Found)
	}
}
