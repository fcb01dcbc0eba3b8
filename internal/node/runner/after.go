package runner

import (
	"context"
	"os"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// ledgerLag is how long a network file system may show a record as it was: a
// job that the scheduler has seen end has its end on the disk.
const ledgerLag = 10 * time.Second

// gate ends an attempt before its command starts while a job that it waits for
// has not ended; the next attempt is then queued behind that job. The ledger
// decides whether a job has ended, because the scheduler takes the end of an
// attempt for the end of its job. A job that can never begin ends for good.
func (r *attempt) gate(ctx context.Context) error {
	if len(r.spec.After) == 0 {
		return nil
	}
	ledger, err := store.At(store.HomeOf(r.jobDir))
	if err != nil {
		return err
	}
	var w jobs.Wait
	for began := time.Now(); ; {
		var records map[string]*jobs.Record
		err := r.insist("the jobs it waits for cannot be read", r.times.Silent/3, func() (err error) {
			w, records, err = ledger.Wait(r.spec.After)
			return err
		})
		if err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the jobs it waits for", Err: err}
		}
		if w.Over() || !r.ending(w, records) || time.Since(began) >= ledgerLag {
			break
		}
		select {
		case <-ctx.Done():
			return errStopped
		case <-time.After(ledgerLag / 40):
		}
	}
	switch {
	case w.Never != "":
		r.stop.set(why{state: jobs.StateError, class: jobs.ClassPolicy, code: jobs.CodeTaskFailed, reason: w.Never,
			hint: "berth explain " + jobs.Short(w.Because) + " tells why"})
		return errStopped
	case !w.Over():
		r.stop.set(why{state: jobs.StateError, class: jobs.ClassWaiting, code: jobs.CodePending, reason: "it waits for " + w.String()})
		return errStopped
	}
	r.event("released", "the jobs that it waited for have ended")
	return nil
}

// ending reports whether the jobs that are waited for may have ended, with the
// records of their ends not visible here yet. That is possible only for attempts
// that have begun and that are older than this one, which was queued behind them.
func (r *attempt) ending(w jobs.Wait, records map[string]*jobs.Record) bool {
	for _, a := range w.For {
		if c := records[a.Job].Current(); c == nil || c.Claim == nil || c.Info.Created.After(r.info.Created) {
			return false
		}
	}
	return true
}

// Held returns a function that reports which jobs the job of an attempt still
// waits for, and whether it can never begin. There may be no other process that
// follows those jobs, so the function has the program client, if there is one,
// follow them from time to time.
func Held(attemptDir, client string) func() (waits string, never bool) {
	const first, most = time.Minute, 15 * time.Minute
	pause := first
	next := time.Now().Add(pause)
	jobDir := store.JobDirOf(attemptDir)
	return func() (string, bool) {
		rec, err := store.LoadDir(jobDir)
		if err != nil {
			return "its record, which cannot be read: " + err.Error(), false
		}
		ledger, err := store.At(store.HomeOf(jobDir))
		if err != nil {
			return err.Error(), false
		}
		w, _, err := ledger.Wait(rec.Spec.After)
		if err != nil {
			return "a job that cannot be read: " + err.Error(), false
		}
		if w.Over() {
			return "", w.Never != ""
		}
		if client != "" && time.Now().After(next) {
			pause = min(2*pause, most)
			ids := make([]string, len(w.For))
			for i, a := range w.For {
				ids[i] = a.Job
			}
			ctx, cancel := context.WithTimeout(context.Background(), first)
			_, _ = run.Output(ctx, run.Local{}, jobs.Cmd{
				Argv: append([]string{client, "follow"}, ids...),
				Env:  append(os.Environ(), "BERTH_HOME="+store.HomeOf(jobDir)),
			})
			cancel()
			next = time.Now().Add(pause)
		}
		return w.String(), false
	}
}
