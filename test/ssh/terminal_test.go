//go:build cluster

package ssh

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/backends/ssh"
	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// TestTerminal: what only a person can answer is asked once, on the terminal;
// everything after it rides on that connection.
func TestTerminal(t *testing.T) {
	if to := os.Getenv("BERTH_TEST_CONNECT"); to != "" { // the side that has the terminal
		h, err := ssh.Backend{Program: os.Getenv("BERTH_TEST_SSH"), Control: os.Getenv("BERTH_TEST_CONTROL")}.Host(jobs.SSHSpec{Host: to})
		if err == nil {
			err = h.Connect(t.Context(), true)
		}
		if err != nil {
			t.Fatalf("%v (%s)", err, jobs.HintOf(err))
		}
		return
	}
	s := newSite(t)
	v := s.server("one")
	host(t, "ssh-keygen", "-q", "-p", "-f", s.key, "-P", "", "-N", "open sesame")
	h := s.host(jobs.SSHSpec{Host: v.ip4})
	s.know(v.ip4)
	if err := h.Connect(t.Context(), false); jobs.KindOf(err) != jobs.KindAuth || !strings.Contains(jobs.HintOf(err), "ssh-add") {
		t.Errorf("%v (%s)", err, jobs.HintOf(err))
	}
	s.write(s.known, "") // it is asked about, too
	// connect gives each answer when its question stands there: ssh throws away
	// what was typed before it asks.
	connect := func(answers ...[2]string) (string, error) {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, "script", "-qefc", os.Args[0]+" -test.run ^TestTerminal$", "/dev/null")
		cmd.Env = append(os.Environ(), "BERTH_TEST_CONNECT="+v.ip4, "BERTH_TEST_SSH="+s.program, "BERTH_TEST_CONTROL="+s.control, "SSH_ASKPASS_REQUIRE=never")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = w, w
		err = cmd.Start()
		_ = w.Close()
		if err != nil {
			t.Fatal(err)
		}
		text, rest := "", ""
		for buf := make([]byte, 4096); ; {
			n, err := out.Read(buf)
			text, rest = text+string(buf[:n]), rest+string(buf[:n])
			for len(answers) > 0 {
				_, after, asked := strings.Cut(rest, answers[0][0])
				if !asked {
					break
				}
				_, _ = in.Write([]byte(answers[0][1] + "\n"))
				rest, answers = after, answers[1:]
			}
			if err != nil {
				break
			}
		}
		return text, cmd.Wait()
	}
	const known, passphrase = "(yes/no", "Enter passphrase"
	if out, err := connect([2]string{known, "no"}); err == nil || !strings.Contains(out, "fingerprint") || !strings.Contains(out, "is not known") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := connect([2]string{known, "yes"}, [2]string{passphrase, "open sesame"})
	if err != nil || !strings.Contains(out, "fingerprint") || !strings.Contains(out, "passphrase") {
		t.Fatalf("%v: %s", err, out)
	}
	if !h.Connected(t.Context()) {
		t.Error("not connected")
	}
	// From here on no one is asked.
	if e := exitOf(t, h, "true"); !e.OK() {
		t.Errorf("%+v", e)
	}
	c, _ := open(t, s.withNode(), s.env("x", v.ip4), nil)
	if got := sh(t, c, "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
}

// TestNumbers measures; nothing depends on what comes out.
func TestNumbers(t *testing.T) {
	s := newSite(t)
	v := s.server("one")
	s.know(v.ip4)
	b := s.withNode()
	e := s.env("x", v.ip4)
	begun := time.Now()
	c, _ := open(t, b, e, nil)
	t.Logf("first contact, with the copy of the program: %v", time.Since(begun))
	h, err := b.Host(*e.SSH)
	if err != nil {
		t.Fatal(err)
	}
	median := func(what string, do func()) {
		var all []time.Duration
		for range 50 {
			begun := time.Now()
			do()
			all = append(all, time.Since(begun))
		}
		slices.Sort(all)
		t.Logf("%s: median %v, 90 %% %v", what, all[25], all[45])
	}
	socket := ""
	entries, err := os.ReadDir(s.control)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range entries {
		if strings.HasSuffix(f.Name(), ".ssh") {
			socket = s.control + "/" + f.Name()
		}
	}
	median("ssh HOST /bin/true over the connection", func() {
		host(t, "ssh", "-F", s.config, "-oControlPath="+socket, v.ip4, "/bin/true")
	})
	median("Host.Start of /bin/true", func() { exitOf(t, h, "/bin/true") })
	median("an argv over the open session", func() {
		p, err := c.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"/bin/true"}}}, nil, nil)
		if err == nil {
			_, err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	median("a shell text over the open session", func() { sh(t, c, "true") })
	median("dial, greet and run, over the connection", func() {
		conn, _, err := b.Dial(t.Context(), e, keeper.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := session.Open(t.Context(), conn, conn, session.Options{PingTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		sh(t, s, "true")
		_ = s.Close()
	})
}
