package record

import (
	"slices"
	"time"

	"berth/internal/network/policy"
	"berth/jobs/store"
)

// allowVerb is the origin of rules that the user adds while it runs.
const allowVerb = "berth network allow"

// Watch returns what a supervisor calls once before anything runs, and at each heartbeat: it has
// add take the words that the user has added since, and acknowledges them in the file. dir is that
// of the job, or of the environment. What it returns is for one goroutine.
func (l *Log) Watch(dir string, add func([]policy.Rule) error) (look func()) {
	taken := map[string]bool{} // by this judge, which begins with none of them
	var unsaid []*Taken
	return func() {
		acts, err := store.Allows(dir, taken)
		if err != nil {
			l.Note("words that were added could not be read: " + err.Error())
		}
		for _, act := range acts {
			taken[act.ID] = true
			t := &Taken{NetworkAddition: act}
			if err := addWords(act.Words, add); err != nil {
				t.Trouble = text(err.Error())
			}
			unsaid = append(unsaid, t)
		}
		unsaid = slices.DeleteFunc(unsaid, l.taken)
	}
}

// addWords adds all of them, or none.
func addWords(words []string, add func([]policy.Rule) error) error {
	var all []policy.Rule
	for _, w := range words {
		rules, err := policy.Parse(w)
		if err != nil {
			return err
		}
		for _, r := range rules {
			r.From = allowVerb
			all = append(all, r)
		}
	}
	return add(all)
}

// taken acknowledges an act, once in a file. It is false where that has to be tried again.
func (l *Log) taken(t *Taken) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.seen[t.ID]:
		return true
	case !l.put(Line{Time: time.Now().UTC(), Allow: t}):
		return false
	}
	l.seen[t.ID] = true
	l.sums.take(t)
	return true
}
