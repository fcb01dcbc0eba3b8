package config

import "testing"

// The agent that looks at results is the user's to name.
func TestReviewer(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{"": "", "agent = \"claude\"": "claude", "agent = \"none\"": ""} {
		w.write(t, w.user, "[review]\n"+text+"\n")
		if got := w.load(t).Reviewer(); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	w.write(t, w.user, "")
	w.refused(t, "[review]\nagent = \"claude\"\n", "review.agent")
}
