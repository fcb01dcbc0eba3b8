package queue

import (
	"fmt"
	"os"
	"path/filepath"

	"berth/internal/sys/failpoint"
	"berth/internal/sys/run"
	"berth/jobs"
)

// start starts the command as the job's process from now on, waits for its end
// and goes on with the job: this process is the one of which it is certain that
// it is there when the command is killed.
func (w *waiter) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	failpoint.Hit("queue.become")
	p, err := run.Detach(w.argv, os.Environ(), w.watch, filepath.Join(w.watch, jobs.SchedulerLog))
	if err != nil {
		return err
	}
	w.entry.PID = p.PID
	w.entry.Started, _ = processStart(p.PID) // unless it has ended, which is as good as gone
	if err := w.entry.save(w.dir); err != nil {
		// The job goes on, without its share of the machine.
		fmt.Fprintln(os.Stderr, "berth: queue: record the start:", err)
	}
	<-p.Done
	return become([]string{self, jobs.VerbWatch, w.watch})
}
