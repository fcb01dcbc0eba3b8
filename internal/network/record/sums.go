package record

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"berth/internal/network/judge"
	"berth/jobs"
)

// Bounds of sums.
const (
	maxKeys   = 2000 // of decisions on names that are told apart
	maxShown  = 100  // of the names in a [jobs.NetworkUse]
	maxLimits = 32
	maxNotes  = 32
	maxAdded  = 100
	maxText   = 500 // bytes of a text
)

// limitWord begins the reason of what met a limit, see [judge.Entry].
const limitWord = "limit: "

// key is what is told apart.
type key struct {
	phase, name string
	port        uint16
	allowed     bool
	rule        string
}

// sums are what entries add up to. It is not safe for concurrent use.
type sums struct {
	use   jobs.NetworkUse // but for its lists of names and limits
	names map[key]*jobs.NetworkName
	met   map[string]int
	// Decisions on names beyond maxKeys.
	otherAllowed, otherRefused int
}

func newSums() *sums { return &sums{names: map[key]*jobs.NetworkName{}, met: map[string]int{}} }

// ask adds what a request asked of a model.
func (s *sums) ask(u *jobs.Usage) {
	if *u == (jobs.Usage{}) {
		return
	}
	if s.use.Models == nil {
		s.use.Models = &jobs.Usage{}
	}
	s.use.Models.Add(u)
}

func (s *sums) add(e *judge.Entry) {
	allowed := e.Decision == judge.Allowed
	if allowed && e.Port != 0 {
		s.use.Flows++
		s.use.Up += jobs.Bytes(max(e.Up, 0))
		s.use.Down += jobs.Bytes(max(e.Down, 0))
		if e.Opaque {
			s.use.Opaque++
		}
	}
	if what, ok := strings.CutPrefix(e.Reason, limitWord); ok {
		if what = text(what); s.met[what] > 0 || len(s.met) < maxLimits {
			s.met[what]++
		}
		if !allowed {
			return // no rule is about it
		}
	}
	k := key{phase: text(e.Phase), name: text(cmp.Or(e.Name, e.Addr)), port: e.Port, allowed: allowed, rule: text(e.Rule)}
	n := s.names[k]
	switch {
	case n != nil:
	case len(s.names) < maxKeys:
		n = &jobs.NetworkName{Phase: k.phase, Name: k.name, Port: k.port, Rule: k.rule, First: e.Time}
		s.names[k] = n
	case allowed:
		s.otherAllowed++
		return
	default:
		s.otherRefused++
		return
	}
	n.Count++
	n.Up += jobs.Bytes(max(e.Up, 0))
	n.Down += jobs.Bytes(max(e.Down, 0))
	if e.Time.Before(n.First) {
		n.First = e.Time
	}
	if end := e.Time.Add(seconds(e.Seconds)); end.After(n.Last) {
		n.Last = end
		n.Origin, n.Hint, n.Word, n.Reason = text(e.Origin), text(e.Hint), text(e.Word), text(e.Reason)
	}
	if allowed && failed(e) {
		n.Failed++
	}
	if e.After != "" {
		n.After = text(e.After)
	}
}

// failed reports whether an allowed connection was not made.
func failed(e *judge.Entry) bool { return e.Reason != "" && e.Up <= 0 && e.Down <= 0 }

func seconds(n float64) time.Duration {
	if n < 0 || n > 1e9 {
		return 0
	}
	return time.Duration(n * float64(time.Second))
}

// summary is all of it as it stands.
func (s *sums) summary() *jobs.NetworkUse {
	use := s.use
	use.Notes, use.Added = slices.Clone(use.Notes), slices.Clone(use.Added)
	var allowed, refused []jobs.NetworkName
	for k, n := range s.names {
		switch {
		case !k.allowed:
			refused = append(refused, *n)
		case k.port != 0: // a question for a name is none of its uses
			allowed = append(allowed, *n)
		}
	}
	slices.SortFunc(allowed, func(a, b jobs.NetworkName) int {
		return cmp.Or(cmp.Compare(b.Up+b.Down, a.Up+a.Down), byName(&a, &b))
	})
	slices.SortFunc(refused, func(a, b jobs.NetworkName) int { return cmp.Or(b.Last.Compare(a.Last), byName(&a, &b)) })
	use.Allowed, use.MoreAllowed = shown(allowed, s.otherAllowed)
	use.Refused, use.MoreRefused = shown(refused, s.otherRefused)
	for what, n := range s.met {
		use.Limits = append(use.Limits, jobs.NetworkLimit{What: what, Count: n})
	}
	slices.SortFunc(use.Limits, func(a, b jobs.NetworkLimit) int { return cmp.Compare(a.What, b.What) })
	return &use
}

func byName(a, b *jobs.NetworkName) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Rule, b.Rule))
}

// shown are the first, with the decisions on all others.
func shown(all []jobs.NetworkName, more int) ([]jobs.NetworkName, int) {
	for _, n := range all[min(len(all), maxShown):] {
		more += n.Count
	}
	return all[:min(len(all), maxShown)], more
}

func (s *sums) note(t string) {
	if t = text(t); len(s.use.Notes) < maxNotes && !slices.Contains(s.use.Notes, t) {
		s.use.Notes = append(s.use.Notes, t)
	}
}

// take has words of the user's in the sums.
func (s *sums) take(t *Taken) {
	if t.Trouble != "" {
		s.note("berth network allow " + strings.Join(t.Words, " ") + ": " + t.Trouble)
	}
	for _, w := range t.Words {
		if w = text(w); t.Trouble == "" && len(s.use.Added) < maxAdded && !slices.Contains(s.use.Added, w) {
			s.use.Added = append(s.use.Added, w)
		}
	}
}

// text is bounded, and drives no terminal.
func text(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return jobs.Printable(s)
}
