package run

import (
	"syscall"

	"berth/jobs"
)

// Terminate sends TERM to the main process of a command that [Local] has
// started. What it leaves behind of its process group is killed when it ends:
// one that was told to end may go and leave what it had begun. After its end
// nothing is done.
func Terminate(p jobs.Process) error {
	if p, ok := p.(*process); ok {
		p.mu.Lock()
		p.rest = true
		p.mu.Unlock()
	}
	return p.Signal(syscall.SIGTERM)
}

// endRest kills what is left of the group of a command that was told to end. It
// is called between the command's end and the wait for it: until that, no other
// process and no other group can have its number.
func (p *process) endRest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}
