package runner

import (
	"context"
	"strings"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/jobs"
)

// Bounds of asking an agent for its version: the answer is the image's, and hostile.
var agentWait = 5 * time.Second // tests of what answers give it longer

const (
	agentGrace   = time.Second // between TERM and KILL
	agentAnswer  = 4 << 10
	agentVersion = 100 // bytes that are recorded
)

// askAgent asks the agent's program, in the container and before the command, for its
// version. It has none of the task's secrets. What does not answer in time is ended, and
// the version is then not known.
func (r *attempt) askAgent(ctx context.Context, c *container.Container) {
	a := r.spec.Agent
	if a == nil || len(a.VersionArgv) == 0 {
		return
	}
	var out firstBytes
	p, err := c.Session().Start(session.StartRequest{Command: jobs.Command{Argv: a.VersionArgv}, Env: r.spec.Env}, &out, nil)
	if err != nil {
		r.log.Warn("the agent could not be asked for its version", "err", err)
		return
	}
	type answer struct {
		exit jobs.Exit
		err  error
	}
	ended := make(chan answer, 1)
	go func() {
		res, err := p.Wait()
		ended <- answer{res.Exit, err}
	}()
	ask := func(d time.Duration) (answer, bool) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case a := <-ended:
			return a, true
		case <-ctx.Done():
		case <-r.stop.Done():
		case <-t.C:
		}
		return answer{}, false
	}
	got, ok := ask(agentWait)
	if !ok {
		_ = p.Terminate(agentGrace)
		if ctx.Err() == nil && r.stop.Why() == nil {
			r.note("the agent " + a.Name + " did not tell its version within " + agentWait.String())
			_, _ = ask(2 * agentGrace) // what lives on ends with the container
		}
		return
	}
	if got.err == nil && got.exit.OK() {
		r.agentTold = versionLine(out.b)
	}
}

// versionLine is the first line of an answer, as it can be recorded and shown.
func versionLine(b []byte) string {
	for line := range strings.Lines(string(b)) {
		if s := strings.TrimSpace(jobs.Printable(strings.TrimSpace(line))); s != "" {
			return strings.ToValidUTF8(s[:min(len(s), agentVersion)], "")
		}
	}
	return ""
}

// firstBytes keeps the beginning of what is written.
type firstBytes struct{ b []byte }

func (f *firstBytes) Write(p []byte) (int, error) {
	f.b = append(f.b, p[:min(len(p), agentAnswer-len(f.b))]...)
	return len(p), nil
}
