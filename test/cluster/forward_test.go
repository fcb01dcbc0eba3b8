//go:build cluster

package cluster

import (
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// listener is a service in a container: it answers each line in capitals.
const listener = `import socket
s = socket.socket(); s.bind(("127.0.0.1", 8765)); s.listen()
print("listens", flush=True)
while True:
    c, _ = s.accept(); c.sendall(c.makefile().readline().upper().encode()); c.close()`

// TestForwardFar: a port of a machine without Slurm leads through the login node and
// the job's compute node to a service of the task.
func TestForwardFar(t *testing.T) {
	s := standard
	s.need(t)
	ip := s.on(t, "login", "root", "hostname", "-i")
	k := newLink(t, net.JoinHostPort(strings.Fields(ip.out)[0], "22"))
	c := newClient(t, s, k)
	id := c.ok("submit", "--image", s.image, "--memory", "300MiB", "--", "exec python3 -c '"+listener+"'")
	t.Cleanup(func() {
		k.mend()
		c.run("cancel", id)
		c.run("wait", "--timeout", "2m", id)
		c.run("rm", "--force", id)
	})
	waitFor(t, patience, func() bool { return c.run("logs", id).out == "listens\n" })
	forward := c.command("forward", id, "0:8765", "0:9")
	var said saying
	forward.Stderr = &said
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	leads := regexp.MustCompile(`(127\.0\.0\.1:[0-9]+) leads to port ([0-9]+)`)
	waitFor(t, patience, func() bool { return len(leads.FindAllString(said.String(), -1)) == 2 })
	address := map[string]string{}
	for _, m := range leads.FindAllStringSubmatch(said.String(), -1) {
		address[m[2]] = m[1]
	}
	ask := func(port, word string) string {
		conn, err := net.Dial("tcp", address[port])
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, word+"\n")
		b, _ := io.ReadAll(conn)
		return string(b)
	}
	for _, word := range []string{"first", "second"} {
		if got := ask("8765", word); got != strings.ToUpper(word)+"\n" {
			t.Errorf("%q\n%s", got, said.String())
		}
	}
	if got := ask("9", "x"); got != "" {
		t.Errorf("%q", got)
	}
	waitFor(t, patience, func() bool { return strings.Contains(said.String(), "port 9 inside: connection refused") })
	if err := forward.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := forward.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
	// So it does into an environment in an allocation.
	t.Cleanup(func() { c.run("env", "rm", "--force", "far") })
	c.ok(append([]string{"exec", "--env", "far", "--scheduler", "slurm", "--image", s.image}, append(slices.Clone(c.login), "--", "true")...)...)
	c.ok("bg", "start", "--env", "far", "--", "exec python3 -c '"+listener+"'")
	inside := c.command("forward", "--env", "far", "0:8765")
	var env saying
	inside.Stderr = &env
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, patience, func() bool { return leads.MatchString(env.String()) })
	address["8765"] = leads.FindStringSubmatch(env.String())[1]
	waitFor(t, patience, func() bool { return ask("8765", "third") == "THIRD\n" })
	c.ok("env", "rm", "--force", "far")
	_ = inside.Wait()
	if code := inside.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d\n%s", code, env.String())
	}
	// It ends with the connection, or with the job.
	for _, stop := range []func(){k.cut, func() { c.ok("cancel", id) }} {
		forward = c.command("forward", id, "0:8765")
		var end saying
		forward.Stderr = &end
		if err := forward.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, patience, func() bool { return leads.MatchString(end.String()) })
		stop()
		_ = forward.Wait()
		if code := forward.ProcessState.ExitCode(); code != 5 || !strings.Contains(end.String(), "ended") || !strings.Contains(end.String(), "hint: ") {
			t.Errorf("exit code %d\n%s", code, end.String())
		}
		k.mend()
	}
}
