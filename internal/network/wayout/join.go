package wayout

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
)

// joinTime bounds the beginning: the supervisor may wait for a sign of another relay.
const joinTime = 15 * time.Second

// Join connects, on its node, to the supervisor of the attempt or environment in dir. On the
// stream [Serve] is the relay, here or where it is passed on to.
func Join(ctx context.Context, dir string) (*os.File, error) {
	s, err := peek(dir)
	if err != nil {
		return nil, err
	}
	me := lease.Self()
	switch {
	case s == nil:
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "no supervisor waits for a relay in " + dir, Hint: "does it still run? berth ps"}
	case !s.Near(me):
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("its supervisor runs on %s, and this is %s", s.Host, me.Host)}
	}
	f, err := socket.Dial(ctx, s.Socket)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "connect to the supervisor, process " + fmt.Sprint(s.PID), Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	_ = f.SetDeadline(time.Now().Add(joinTime))
	taken := ""
	if err = proveFirst(f, s.Secret); err == nil {
		taken, err = readLine(f)
	}
	switch {
	case !stop() && err == nil:
		err = context.Cause(ctx)
	case err != nil:
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "be the relay of the supervisor, process " + fmt.Sprint(s.PID), Err: err}
	case taken != "":
		err = &jobs.Error{Kind: jobs.KindAgain, Msg: taken, Hint: "berth network relay status"}
	default:
		_ = f.SetDeadline(time.Time{})
		return f, nil
	}
	_ = f.Close()
	return nil, err
}

// readLine reads no byte behind the line.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 1<<10; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return jobs.Printable(string(bytes.TrimSpace(line))), nil
}
