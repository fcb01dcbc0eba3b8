package judge

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// RefusedError says that the network refuses a connection of [Judge.Dial].
type RefusedError struct {
	Hint  string
	NoWay bool // it would be allowed, and there is no way out at the moment
}

func (e *RefusedError) Error() string { return e.Hint }

// Dial connects for this process itself, which speaks with the host that it names: its
// bytes are counted, and not looked at. The policies, the way out and the bounds are
// those of a flow. A refusal is a [RefusedError]. It is recorded when it is closed.
func (j *Judge) Dial(ctx context.Context, phase, host string, port uint16) (net.Conn, error) {
	f := j.newFlow(Request{Phase: phase, Host: host, Port: port}, absent{})
	n := j.flows.Add(1)
	_, err := f.judge(ctx, n)
	if err == nil {
		err = f.ready(ctx)
	}
	if err == nil {
		err = f.connect(ctx, f.name)
	}
	if err != nil {
		f.fail(err)
		f.record()
		var r *refusal
		if errors.As(err, &r) && (r.status == 503 || !r.unreached) {
			return nil, &RefusedError{Hint: r.why, NoWay: r.status == 503}
		}
		return nil, err
	}
	f.expect(j.o.Limits.Idle, "limit: idle")
	return &dialled{Conn: f.server, f: f}, nil
}

// dialled is a connection of [Judge.Dial].
type dialled struct {
	net.Conn
	f    *flow
	over sync.Once
}

func (d *dialled) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	d.f.active.Store(time.Now().UnixNano())
	d.f.down.Add(int64(n))
	if over(&d.f.usage.down, n, d.f.j.o.Limits.Down) {
		err = limitBytes("down", d.f.j.o.Limits.Down)
		d.f.fail(err)
	}
	return n, err
}

func (d *dialled) Write(b []byte) (int, error) { return len(b), d.f.toServer(b) }

// Close records the connection.
func (d *dialled) Close() error {
	d.over.Do(func() {
		d.f.end("")
		d.f.record()
	})
	return nil
}

// absent stands for the program of a connection which has none.
type absent struct{}

func (absent) Read([]byte) (int, error)    { return 0, net.ErrClosed }
func (absent) Write(b []byte) (int, error) { return len(b), nil }
func (absent) CloseWrite() error           { return nil }
func (absent) Close() error                { return nil }
