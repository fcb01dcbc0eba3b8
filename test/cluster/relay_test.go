//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// whoAsks is a service that answers with the address of whoever asks it.
const whoAsks = `import socket, sys
s = socket.socket(); s.bind((sys.argv[1], 0)); s.listen()
open("port", "w").write(str(s.getsockname()[1]))
while True:
    c, peer = s.accept(); c.recv(9000)
    c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(peer[0]) + peer[0].encode()); c.close()`

// asks is a program in a container that prints the answer, and tries for as long as it takes.
const asks = `import time, urllib.request
while True:
    try:
        print(urllib.request.urlopen("http://%s/", timeout=60).read().decode(), flush=True); break
    except OSError as e:
        print("again:", e, flush=True); time.sleep(1)`

// The connections of a job with via = "login" are made on the login node: by berth run while
// it watches, or by a relay in the background, for which the job waits.
func TestRelay(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.dir(t)
		login := strings.Fields(s.on(t, "login", "root", "hostname", "-i").out)[0]
		env := "export XDG_CONFIG_HOME=" + d + "/config; cd " + d + "; "
		s.ok(t, env+"berth config set network.via login; python3 -c "+quote(whoAsks)+" "+login+" >service 2>&1 </dev/null & echo $! >pid; until [ -s port ]; do sleep 0.1; done")
		t.Cleanup(func() { s.sh(t, env+"kill $(cat pid); berth network relay stop") })
		at := login + ":" + s.ok(t, "cat "+d+"/port")
		job := fmt.Sprintf(" %s %s --retry off --network allow --allow %s -- %s", s.flags(), s.place(), at, quote("python3 -c '"+strings.ReplaceAll(fmt.Sprintf(asks, at), "'", `"`)+"'"))

		if got := s.want(t, env+"berth run"+job, 0, "relay of job [0-9a-f]{8}: connected"); lastLine(got.out) != login {
			t.Errorf("%q, not %s", got.out, login)
		}

		id := s.ok(t, env+"berth submit"+job)
		s.ok(t, env+"until berth ps | grep -q '^"+id+".*waiting for a relay'; do sleep 0.3; done")
		s.want(t, env+"berth network relay status", 3, "no relay runs on this machine")
		s.want(t, env+"berth network relay start --limit 20m", 0, "relay started: process [0-9]+ on login")
		s.want(t, env+"berth wait "+id, 0)
		if got := s.ok(t, env+"berth logs "+id); lastLine(got) != login {
			t.Errorf("%q, not %s", got, login)
		}
		s.want(t, env+"berth network relay stop", 0, "has ended")
	})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
