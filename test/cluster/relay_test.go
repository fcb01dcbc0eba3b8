//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
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

// drips is a service that says the address of whoever asks it, a line every 0.2 s.
const drips = `import socket, sys, threading, time
s = socket.socket(); s.bind((sys.argv[1], 0)); s.listen()
open("port", "w").write(str(s.getsockname()[1]))
def serve(c, peer):
    try:
        c.recv(9000); c.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            c.sendall(peer[0].encode() + b"\n"); time.sleep(0.2)
    except OSError:
        c.close()
while True:
    threading.Thread(target=serve, args=s.accept(), daemon=True).start()`

// reads is a program in a container that reads 150 lines in one piece, and begins again where it is cut.
const reads = `import http.client, time, urllib.request
def read():
    r = urllib.request.urlopen("http://%s/", timeout=90)
    for n in range(150):
        line = r.readline().decode().strip()
        if not line:
            raise OSError("cut")
        print("line", line, flush=True)
while True:
    try:
        read(); print("whole", flush=True); break
    except (OSError, http.client.HTTPException) as e:
        print("again:", e, flush=True); time.sleep(1)`

// A node without a default route reaches what the login node does. A relay that is killed in the middle of a
// connection breaks it, the job waits for another one, and goes on by that.
func TestRelayKilled(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes c1's routes
	d := s.dir(t)
	route := strings.TrimSpace(s.on(t, "c1", "root", "ip", "route", "show", "default").out)
	if route != "" {
		if a := s.on(t, "c1", "root", "ip", "route", "del", "default"); a.code != 0 {
			t.Fatalf("%+v", a)
		}
		t.Cleanup(func() {
			if a := s.on(t, "c1", "root", "sh", "-c", "ip route add "+route); a.code != 0 {
				t.Errorf("%+v", a)
			}
		})
	}
	login := strings.Fields(s.on(t, "login", "root", "hostname", "-i").out)[0]
	env := "export XDG_CONFIG_HOME=" + d + "/config; cd " + d + "; "
	s.ok(t, env+"berth config set network.via login; python3 -c "+quote(drips)+" "+login+" >service 2>&1 </dev/null & echo $! >pid; until [ -s port ]; do sleep 0.1; done")
	t.Cleanup(func() { s.sh(t, env+"kill $(cat pid); berth network relay stop") })
	at := login + ":" + s.ok(t, "cat "+d+"/port")
	start := func() (pid string) {
		a := s.want(t, env+"berth network relay start --limit 20m", 0, "relay started: process [0-9]+ on login")
		return regexp.MustCompile("process ([0-9]+)").FindStringSubmatch(a.err)[1]
	}
	pid := start()
	program := quote("python3 -c '" + strings.ReplaceAll(fmt.Sprintf(reads, at), "'", `"`) + "'")
	id := s.ok(t, env+fmt.Sprintf("berth submit %s %s --retry off --slurm --nodelist=c1 --network allow --allow %s -- %s", s.flags(), s.place(), at, program))
	s.ok(t, env+"until berth logs "+id+" | grep -q '^line'; do sleep 0.3; done; kill -KILL "+pid)
	s.ok(t, env+"until berth logs "+id+" | grep -q '^again'; do sleep 0.3; done; until berth ps | grep -q '^"+id+".*waiting for a relay'; do sleep 0.3; done")
	start()
	s.want(t, env+"berth wait "+id, 0)
	out := s.ok(t, env+"berth logs "+id)
	if lastLine(out) != "whole" || strings.Count(out, "line "+login+"\n") != strings.Count(out, "line ") || strings.Count(out, "again: ") == 0 {
		t.Errorf("not by way of %s, or not in two pieces:\n%s", login, out)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
