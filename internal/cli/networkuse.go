package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/network/record"
	"berth/jobs"
)

// allowWith is the command that adds a word, for an environment, a job that runs and one that has ended.
type allowWith func(word string) string

func (j *jobJSON) allowWith() allowWith {
	if j.Final {
		return func(word string) string { return "--allow " + word }
	}
	return func(word string) string { return "berth network allow " + j.Short + " " + word }
}

// shownNames bounds the names that a line has.
const shownNames = 3

// networkText is what was reached and what was refused, in one line. more is the command that
// shows the rest.
func networkText(u *jobs.NetworkUse, allow allowWith, more string) string {
	reached, unreached := map[string]bool{}, map[string]bool{}
	for _, n := range u.Allowed {
		if n.Count > n.Failed {
			reached[n.Name] = true
		} else {
			unreached[n.Host()] = true
		}
	}
	out := jobs.Plural(len(reached), "name") + " reached"
	if u.MoreAllowed > 0 {
		out += " and more"
	}
	if u.Up+u.Down > 0 {
		out += fmt.Sprintf(" (%s up, %s down)", u.Up.Rough(), u.Down.Rough())
	}
	if n := len(unreached); n > 0 {
		out += fmt.Sprintf(", %d allowed and not reached", n)
	}
	if n := len(u.Limits); n > 0 {
		out += ", " + jobs.Plural(n, "limit") + " met"
	}
	names := refusedNames(u)
	switch {
	case len(names) == 0:
		return out
	case u.MoreRefused > 0:
		out += fmt.Sprintf(", %d and more refused: ", len(names))
	default:
		out += fmt.Sprintf(", %d refused: ", len(names))
	}
	for i, n := range names[:min(len(names), shownNames)] {
		if i > 0 {
			out += ", "
		}
		out += n.Host() + " (" + refusalText(n, allow) + ")"
	}
	if len(names) > shownNames {
		out += fmt.Sprintf(" and %d more (%s)", len(names)-shownNames, more)
	}
	return out
}

// refusedNames are those that were refused, each once: with its port, where that is known.
func refusedNames(u *jobs.NetworkUse) (out []*jobs.NetworkName) {
	for i := range u.Refused {
		n := &u.Refused[i]
		at := slices.IndexFunc(out, func(o *jobs.NetworkName) bool { return o.Name == n.Name })
		switch {
		case at < 0:
			out = append(out, n)
		case out[at].Port == 0:
			out[at] = n
		}
	}
	return out
}

// refusalText says why a name was refused, and what would allow it.
func refusalText(n *jobs.NetworkName, allow allowWith) string {
	why := n.Hint
	if _, rest, ok := strings.Cut(why, ", which is not: "); ok && n.After != "" {
		why = rest
	}
	why, _, _ = strings.Cut(why, "; the rule ")
	switch {
	case why == "no rule allows it" && n.Word == "" && n.Origin != "":
		why = "not on the list of the " + n.Origin
	case why == "no rule allows it":
		why = "not on the list"
	case why == "":
		why = n.Reason
	case n.Rule != "" && n.Origin != "":
		why = strings.TrimPrefix(why, "it is ") + " of the " + n.Origin
	}
	if n.After != "" {
		why = n.After + ", which is allowed, led to it, which is not: " + why
	}
	if n.Word != "" {
		why += "; " + allow(n.Word)
	}
	return why
}

// beforeEnd is how long before the end of a job that failed a refusal is taken for what
// it may have failed from: what came after the command takes its time, too.
const beforeEnd = 2 * time.Minute

// refusedLast are the names that were refused shortly before the end of a job that failed.
func (j *jobJSON) refusedLast() (out []*jobs.NetworkName) {
	if j.State != jobs.StateFailed || j.NetworkUse == nil || j.Ended == nil {
		return nil
	}
	for _, n := range refusedNames(j.NetworkUse) {
		if ago := j.Ended.Sub(n.Last); ago >= -time.Second && ago <= beforeEnd {
			out = append(out, n)
		}
	}
	return out
}

// refusedRows are of these names, which come first.
func (j *jobJSON) refusedRows() (out [][2]string) {
	names := j.refusedLast()
	for _, n := range names[:min(len(names), shownNames)] {
		out = append(out, [2]string{"look first", n.Host() + " was refused " +
			ago(j.Ended.Sub(n.Last)) + " before the end: " + refusalText(n, j.allowWith())})
	}
	return out
}

// networkRow is the line of a job; "" is that nothing is known.
func (j *jobJSON) networkRow() string {
	if j.NetworkUse == nil {
		return ""
	}
	return networkText(j.NetworkUse, j.allowWith(), "berth network show --refused "+j.Short)
}

// envNetworkRows are those of an environment, of what was recorded.
func envNetworkRows(name string, recorded []byte) [][2]string {
	f, err := record.Parse(recorded)
	if err != nil || f.Use() == nil {
		return nil
	}
	allow := func(word string) string { return "berth network allow --env " + name + " " + word }
	return append([][2]string{{"network use", networkText(f.Use(), allow, "berth network show --refused --env "+name)}}, networkUseRows(f.Use())...)
}

// networkUseRows are all that is worth saying of it.
func networkUseRows(u *jobs.NetworkUse) (out [][2]string) {
	if u == nil {
		return nil
	}
	add := func(label, value string) { out = append(out, [2]string{label, value}) }
	switch u.Door {
	case jobs.DoorTransparent:
		add("door", "transparent: names and connections, without a setting")
	case jobs.DoorProxy:
		add("door", "proxy: only programs that honour http_proxy and the like reach anything")
	}
	for i, n := range u.Allowed {
		if i == shownArtifacts {
			add("reached", fmt.Sprintf("%d more", len(u.Allowed)-i))
			break
		}
		text := fmt.Sprintf("%s, %s, %s up, %s down", n.Host(), jobs.Plural(n.Count, "connection"), n.Up.Rough(), n.Down.Rough())
		if n.Failed > 0 {
			text += fmt.Sprintf(", %d failed: %s", n.Failed, n.Reason)
		}
		add("reached", text)
	}
	if u.Opaque > 0 {
		add("opaque", jobs.Plural(u.Opaque, "connection")+": nothing in the bytes says that it was the name's server")
	}
	for _, l := range u.Limits {
		add("limit met", fmt.Sprintf("%s, %s", l.What, jobs.Plural(l.Count, "time")))
	}
	if len(u.Added) > 0 {
		add("added", strings.Join(u.Added, " ")+", while it ran")
	}
	if u.Unrecorded > 0 {
		add("no line", jobs.Plural(u.Unrecorded, "decision")+" of the sums")
	}
	for _, n := range u.Notes {
		add("note", n)
	}
	return out
}
