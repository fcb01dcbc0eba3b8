package runner

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/jobs/store"
)

// tellEvery is how often what a task tells of itself is written.
const tellEvery = time.Second

// asks answers what programs of the task ask of berth. It believes nothing: the words
// are read here alone.
type asks struct {
	dir      string
	log      *slog.Logger
	children *children // nil is that the task may submit none

	mu    sync.Mutex
	told  jobs.Progress
	last  time.Time   // when it was written
	later *time.Timer // writes it; nil is that it is written
}

var metricName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_.:/-]{0,63}$`)

const askHelp = `berth, inside a task:
  berth progress TEXT          one line that berth status shows
  berth metric NAME=NUMBER...  numbers that berth status shows
  berth help
`

// answer answers one request.
func (q *asks) answer(ctx context.Context, m wire.AskMessage) wire.AskAnswer {
	if m.Stub != "" {
		return q.children.stub(ctx, m)
	}
	fail := func(code int, msg, hint string) wire.AskAnswer {
		return wire.AskAnswer{Code: code, Err: wire.Text("berth: error: " + jobs.Printable(msg) + "\nberth: hint: " + jobs.Printable(hint) + "\n")}
	}
	words := wire.Strings(m.Words)
	verb := ""
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	var err error
	switch {
	case verb == "" || verb == "help" || verb == "--help" || verb == "-h":
		return wire.AskAnswer{Out: wire.Text(askHelp + q.children.help())}
	case verb == "progress":
		err = q.progress(strings.Join(words, " "))
	case verb == "metric":
		err = q.metrics(words)
	case slices.Contains(childVerbs, verb) && q.children == nil:
		return fail(jobs.CodeConfig, "berth "+verb+": this task may submit no jobs", "max_jobs in [submit] of the task file allows some")
	case slices.Contains(childVerbs, verb):
		a, err := q.children.verb(ctx, verb, words, string(m.Dir))
		if err == nil {
			return a
		}
		hint := jobs.HintOf(err)
		if hint == "" {
			hint = "berth help"
		}
		return fail(jobs.CodeOf(err), err.Error(), hint)
	default:
		return fail(jobs.CodeUsage, fmt.Sprintf("a task has no berth %.40q", verb), "berth help")
	}
	if err != nil {
		return fail(jobs.CodeOf(err), err.Error(), "berth help")
	}
	return wire.AskAnswer{}
}

func (q *asks) progress(text string) error {
	text = strings.TrimSpace(jobs.Printable(strings.ToValidUTF8(text[:min(len(text), 16<<10)], "?")))
	if text == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth progress needs a text"}
	}
	if r := []rune(text); len(r) > jobs.MaxProgress {
		text = string(r[:jobs.MaxProgress])
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told.Text = text
	q.tell()
	return nil
}

// metrics takes all of them or none.
func (q *asks) metrics(words []string) error {
	if len(words) == 0 || len(words) > jobs.MaxMetrics {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("berth metric needs 1 to %d of NAME=NUMBER", jobs.MaxMetrics)}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[string]float64{}
	for name, v := range q.told.Metrics {
		all[name] = v
	}
	for _, w := range words {
		name, text, _ := strings.Cut(w, "=")
		v, err := strconv.ParseFloat(text, 64)
		if !metricName().MatchString(name) || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return &jobs.Error{Kind: jobs.KindUsage,
				Msg: fmt.Sprintf("%.100q is no NAME=NUMBER: a name is letters, digits and _.:/-, at most 64, a number is finite",
					w)}
		}
		all[name] = v
	}
	if len(all) > jobs.MaxMetrics {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("a task has at most %d metrics", jobs.MaxMetrics)}
	}
	q.told.Metrics = all
	q.tell()
	return nil
}

// tell has it written, now or when the last time is long enough ago. q.mu is held.
func (q *asks) tell() {
	q.told.Version, q.told.Time = 1, time.Now().UTC()
	switch wait := tellEvery - time.Since(q.last); {
	case q.later != nil:
	case q.last.IsZero() || wait <= 0:
		q.write()
	default:
		q.later = time.AfterFunc(wait, q.flush)
	}
}

// end is that of the container.
func (q *asks) end() {
	if q == nil {
		return
	}
	q.flush()
	q.children.leave()
}

// flush writes what is not written yet.
func (q *asks) flush() {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.later != nil {
		q.later.Stop()
		q.later = nil
		q.write()
	}
}

func (q *asks) write() {
	q.last = time.Now()
	if err := store.SetProgress(q.dir, q.told); err != nil {
		q.log.Warn("the progress of the task could not be recorded", "err", err)
	}
}
