package run_test

import (
	"bufio"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// A command that this process talks to ends with its input, and by force where it does not.
func TestPiped(t *testing.T) {
	for _, copies := range []bool{false, true} {
		p, err := run.StartPiped(bounded(t), run.Local{}, jobs.Cmd{Argv: []string{"/bin/cat"}}, copies)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.In.WriteString("hello\n"); err != nil {
			t.Error(err)
		}
		if line, err := bufio.NewReader(p.Out).ReadString('\n'); line != "hello\n" {
			t.Errorf("%q, %v", line, err)
		}
		p.Leave(time.Minute)
		if <-p.Ended; !p.Exit.OK() || p.Err != nil {
			t.Errorf("%+v, %v", p.Exit, p.Err)
		}
		p, err = run.StartPiped(bounded(t), run.Local{}, sh("exec sleep 300"), copies)
		if err != nil {
			t.Fatal(err)
		}
		p.Leave(50 * time.Millisecond)
		run.AwaitLeft()
		select {
		case <-p.Ended:
			if p.Exit.Signal != int(syscall.SIGKILL) {
				t.Errorf("%+v", p.Exit)
			}
		default:
			t.Error("what was left has not ended")
		}
	}
	if _, err := run.StartPiped(bounded(t), run.Local{}, jobs.Cmd{}, false); err == nil {
		t.Error("it has started")
	}
}
