package look

import (
	"fmt"
	"testing"
	"time"

	"berth/internal/sweep/journal"
)

// Every run of a task is found with what it has written: those that failed and were tried
// again, one whose worker ended under it, and that of an earlier round. What was adopted, or
// given back before it began, is no run.
func TestTries(t *testing.T) {
	l := ran(t, did{state: journal.Failed, stdout: "first round"}, did{state: journal.OK})
	now := epoch
	write := func(worker uint32, w *journal.Writer, kind journal.Kind, state journal.State, generation uint16, began time.Time, text string) {
		t.Helper()
		r := journal.Record{Kind: kind, State: state, Round: 2, Generation: generation, Task: 1, Began: began, Worker: worker}
		if text != "" {
			var err error
			r.Output, err = w.Output(1, generation, journal.Stdout, journal.Place{}, []byte(text))
			must(t, err)
		}
		must(t, w.Add(r))
	}
	begin := func() (uint32, *journal.Writer) {
		n, dir, err := l.Sweep.NewWorker()
		must(t, err)
		w, err := journal.Create(dir)
		must(t, err)
		t.Cleanup(func() { _ = w.Close() })
		return n, w
	}
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	late, wl := begin() // its clock is behind, and its generation above
	early, we := begin()
	write(early, we, journal.Start, journal.Running, 1, at(100), "")
	write(early, we, journal.Tried, journal.Failed, 1, at(100), "failed")
	write(early, we, journal.Start, journal.Running, 1, at(110), "")
	write(early, we, journal.Wrote, journal.Running, 1, at(110), "until it died")
	write(late, wl, journal.Tried, journal.Waiting, 3, at(5), "") // dropped
	write(late, wl, journal.Start, journal.Running, 3, at(10), "")
	write(late, wl, journal.Tried, journal.Waiting, 3, at(10), "preempted")
	write(late, wl, journal.Start, journal.Running, 3, at(20), "")
	write(late, wl, journal.End, journal.OK, 3, at(20), "good")
	write(late, wl, journal.Adopted, journal.OK, 4, at(20), "")
	tries, err := l.Tries(1)
	must(t, err)
	var got []string
	for _, r := range tries {
		text := ""
		must(t, l.In.Output(&r.Record, func(f journal.Frame) error { text += string(f.Data); return nil }))
		got = append(got, fmt.Sprint(text, " ", r.State, " ", r.Ended(), " ", r.Void()))
	}
	want := []string{"first round failed true false", "failed failed true false", "until it died running false false",
		"preempted waiting true true", "good ok true false"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\n%q", got, want)
	}
	if tries, err = l.Tries(2); err != nil || len(tries) != 1 {
		t.Errorf("%+v %v", tries, err)
	}
}
