package run

import (
	"context"
	"os"
	"sync"
	"time"

	"berth/jobs"
)

// Piped is a command that this process talks to over its standard input and output.
type Piped struct {
	In, Out *os.File // what it reads, and what it writes
	Proc    jobs.Process
	Kill    context.CancelFunc

	Ended chan struct{} // closed when Exit and Err are set, which are as Wait of Proc has them
	Exit  jobs.Exit
	Err   error
}

// StartPiped starts a command with pipes for its standard input and output. It outlives ctx,
// and ends by itself, by Kill or by [Piped.Leave]. Its own ends of the pipes are closed here
// as soon as it has begun, so that its output ends with the last that writes to it; a starter
// that copies keeps them until the command has ended.
func StartPiped(ctx context.Context, on jobs.Starter, c jobs.Cmd, copies bool) (*Piped, error) {
	itsIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, itsOut, err := os.Pipe()
	if err != nil {
		_ = itsIn.Close()
		_ = in.Close()
		return nil, err
	}
	closeIts := func() {
		_ = itsIn.Close()
		_ = itsOut.Close()
	}
	own, kill := context.WithCancel(context.WithoutCancel(ctx))
	p := &Piped{In: in, Out: out, Kill: kill, Ended: make(chan struct{})}
	c.Stdin, c.Stdout = itsIn, itsOut
	p.Proc, err = on.Start(own, c)
	if !copies || err != nil {
		closeIts()
	}
	if err != nil {
		kill()
		_ = in.Close()
		_ = out.Close()
		return nil, err
	}
	go func() {
		p.Exit, p.Err = p.Proc.Wait()
		kill()
		closeIts()
		close(p.Ended)
	}()
	return p, nil
}

// Leave ends the command by the end of its input, and kills it where that takes longer than
// patience. It waits for neither; [AwaitLeft] does.
func (p *Piped) Leave(patience time.Duration) {
	_ = p.In.Close()
	left.Store(p, true)
	go func() {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-p.Ended:
		case <-t.C:
			p.Kill()
			<-p.Ended
		}
		left.Delete(p)
		_ = p.Out.Close()
	}()
}

// left are the commands that are left and have not ended.
var left sync.Map

// AwaitLeft waits for those that [Piped.Leave] still gives time: for a process that ends and is not
// to leave them behind, such as an ssh whose link is dead.
func AwaitLeft() {
	left.Range(func(p, _ any) bool {
		<-p.(*Piped).Ended
		return true
	})
}
