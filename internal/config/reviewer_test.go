package config

import "testing"

// The agent that looks at results, and the remote, are the user's to name.
func TestReviewer(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{"": "", "agent = \"claude\"": "claude", "agent = \"none\"": ""} {
		w.write(t, w.user, "[review]\n"+text+"\n")
		if got := w.load(t).Reviewer(); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	for text, want := range map[string]string{"": "", "push = \"origin\"": "origin", "push = \"none\"": ""} {
		w.write(t, w.user, "[review]\n"+text+"\n")
		if got := w.load(t).Push(); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	w.write(t, w.user, "")
	w.refused(t, "[review]\npush = \"origin\"\n", "review.push")
	w.refused(t, "[review]\nagent = \"claude\"\n", "review.agent")
}
