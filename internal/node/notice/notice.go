// Package notice tells the user that jobs have ended, as [notify] in the configuration
// says: once, by whoever sees that the last of them has.
package notice

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

const (
	// sending bounds one program.
	sending = 30 * time.Second
	// shown bounds the jobs that a notice names, and longest their names, in characters.
	shown, longest = 500, 100
)

// sendmailDirs often are not on the PATH of users.
var sendmailDirs = []string{"/usr/sbin", "/usr/lib"}

// Webhook posts a notice to the address in a private file. The program for the nodes
// has none.
type Webhook func(ctx context.Context, file string, body []byte) error

// Notice is what a command reads and a webhook gets. It has neither commands nor
// variables of the jobs.
type Notice struct {
	Version int    `json:"version"`
	Label   string `json:"label,omitempty"`
	Subject string `json:"subject"`
	Count   int    `json:"count"`
	Jobs    []Job  `json:"jobs"` // the first of them
}

// Job is one that has ended.
type Job struct {
	ID     string     `json:"id"`
	Name   string     `json:"name"`
	State  jobs.State `json:"state"`
	Code   int        `json:"exit_code"` // as of berth wait
	Branch string     `json:"branch,omitempty"`
}

// Send sends the notices that are due: of each label whose jobs have all ended, by each
// way that this machine has. Without hook, what cannot be sent here is left to the
// client that looks next; with it, a failure is recorded.
func Send(ctx context.Context, ledger *store.Store, hook Webhook) {
	groups, err := ledger.NoticeGroups()
	if err != nil {
		return // the next who looks reads it
	}
	for _, g := range groups {
		if recs, ok := ended(ledger, g, hook == nil); ok && len(recs) > 0 {
			tell(ctx, g, recs, hook)
		}
	}
}

// ended returns the jobs that are to be told of, oldest first, if all have ended. The
// youngest is looked at first: mostly it is the one that has not. A node looks twice at
// one that runs: of the last two, which end at the same time, each could see the other
// one's record as a network file system remembers it, and neither would tell.
func ended(ledger *store.Store, g *store.Group, node bool) (recs []*jobs.Record, ok bool) {
	for _, id := range slices.Backward(g.Open) {
		rec, err := ledger.Load(id)
		if err == nil && node && jobs.StateOf(rec) == jobs.StateRunning {
			if _, err = store.LoadFresh(rec.Current().Dir); err == nil {
				rec, err = ledger.Load(id)
			}
		}
		switch {
		case store.Missing(err): // it was removed, or never submitted
			g.Told([]string{id})
		case err != nil || !jobs.StateOf(rec).Final():
			return nil, false
		default:
			recs = append(recs, rec)
		}
	}
	slices.Reverse(recs)
	return recs, true
}

func tell(ctx context.Context, g *store.Group, recs []*jobs.Record, hook Webhook) {
	ids := make([]string, len(recs))
	for i, r := range recs {
		ids[i] = r.Spec.ID
	}
	how := recs[len(recs)-1].Spec.Notify // as it was configured last
	host, _ := os.Hostname()
	by := fmt.Sprintf("process %d on %s", os.Getpid(), host)
	whole := true
	for _, way := range how.Ways() {
		untold := g.Untold(way, ids)
		if len(untold) == 0 {
			continue
		}
		program, err := find(how, way)
		if hook == nil && (err != nil || way == jobs.NoticeWebhook) {
			whole = false
			continue
		}
		if won, cerr := g.Claim(way, untold, by, time.Now().UTC()); cerr != nil || !won {
			whole = whole && cerr == nil
			continue
		}
		if err == nil {
			n := newNotice(g.Label, slices.DeleteFunc(slices.Clone(recs), func(r *jobs.Record) bool { return !slices.Contains(untold, r.Spec.ID) }))
			err = n.send(ctx, how, way, program, hook)
		}
		if err != nil {
			_ = g.Failed(way, jobs.Printable(err.Error())+" ("+host+")", time.Now().UTC())
		}
	}
	if whole {
		g.Told(ids)
	}
}

// find returns the program of a way.
func find(how *jobs.Notify, way string) (string, error) {
	switch way {
	case jobs.NoticeCommand:
		return exec.LookPath(how.Command[0])
	case jobs.NoticeMail:
		path, err := exec.LookPath("sendmail")
		for _, dir := range sendmailDirs {
			if err != nil {
				path, err = exec.LookPath(filepath.Join(dir, "sendmail"))
			}
		}
		if err != nil {
			err = errors.New("there is no sendmail")
		}
		return path, err
	}
	return "", nil
}

func newNotice(label string, recs []*jobs.Record) Notice {
	n := Notice{Version: 1, Label: label, Count: len(recs), Jobs: []Job{}}
	counts := map[jobs.State]int{}
	for _, r := range recs {
		state := jobs.StateOf(r)
		counts[state]++
		if len(n.Jobs) == shown {
			continue
		}
		j := Job{ID: r.Spec.ID, Name: jobs.Printable(r.Spec.Name), State: state, Code: jobs.CodeOfRecord(r)}
		if name := []rune(j.Name); len(name) > longest {
			j.Name = string(name[:longest])
		}
		if res := r.Current().Result(); res != nil && res.Changed() {
			j.Branch = jobs.Printable(res.Branch)
		}
		n.Jobs = append(n.Jobs, j)
	}
	var parts []string
	states := []jobs.State{jobs.StateCompleted, jobs.StateFailed, jobs.StateCancelled,
		jobs.StateTimeout, jobs.StateOutOfMemory, jobs.StateError, jobs.StateLost}
	for _, s := range states {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], strings.ReplaceAll(string(s), "_", " ")))
		}
	}
	what := "jobs"
	if n.Count == 1 {
		what = "job"
	}
	if label != "" {
		what += " of label " + label
	}
	n.Subject = fmt.Sprintf("berth: %d %s ended: %s", n.Count, what, strings.Join(parts, ", "))
	return n
}

// send sends the notice in one way.
func (n Notice) send(ctx context.Context, how *jobs.Notify, way, program string, hook Webhook) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	c := jobs.Cmd{}
	switch way {
	case jobs.NoticeWebhook:
		return hook(ctx, how.WebhookFile, body)
	case jobs.NoticeCommand:
		c.Argv, c.Stdin = append([]string{program}, how.Command[1:]...), bytes.NewReader(append(body, '\n'))
	case jobs.NoticeMail:
		c.Argv, c.Stdin = []string{program, "-i", "-t"}, strings.NewReader(n.mail(how.Mail))
	}
	ctx, cancel := context.WithTimeout(ctx, sending)
	defer cancel()
	_, err = run.Output(ctx, run.Local{}, c)
	return err
}

// mail is the notice as a message. Its headers are of letters, digits and the few other
// characters that labels and addresses may have.
func (n Notice) mail(to string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "To: %s\nSubject: %s\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n"+
		"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n%s\n\n", to, n.Subject, n.Subject)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tSTATE\tEXIT\tNAME\tBRANCH")
	for _, j := range n.Jobs {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", jobs.Short(j.ID), j.State, j.Code, j.Name, cmp.Or(j.Branch, "-"))
	}
	_ = w.Flush()
	if more := n.Count - len(n.Jobs); more > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	return b.String()
}
