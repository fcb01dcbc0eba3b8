//go:build linux

package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/link/wire"
)

// A program inside may send what it likes to the socket: what is no request is answered
// with an error and passed on to no one, a slow one keeps no other from being taken, and the
// socket is in a directory of the guest's user alone.
func TestAskSocketHostile(t *testing.T) {
	s := &server{}
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, askSocket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	go s.serveAsks(l)
	t.Cleanup(func() { _ = l.Close() })
	dial := func() *net.UnixConn {
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	slow := dial() // its head never ends
	_, _ = slow.Write([]byte(`{"words":["pro`))
	var wg sync.WaitGroup
	for name, data := range map[string][]byte{
		"nothing": nil, "garbage": []byte("\x00\xff\x1b[2J{{{"), "a list": []byte("[]"), "deep": bytes.Repeat([]byte("["), 100_000),
		"a number": []byte(`{"words":[1]}`), "too long": bytes.Repeat([]byte(" "), maxAsk+2), "another protocol": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		c := dial()
		wg.Go(func() {
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, werr := c.Write(data) // one that is too long is not read to its end
			_ = c.CloseWrite()
			b, err := io.ReadAll(c)
			var a wire.AskAnswer
			if name == "too long" && err != nil {
				return // it was cut off
			}
			if err != nil || json.Unmarshal(b, &a) != nil || a.Code != 2 || a.Out != "" || !strings.HasPrefix(string(a.Err), "berth: error: ") {
				t.Errorf("%s: %q, %v, %v", name, b, err, werr)
			}
		})
	}
	wg.Wait()
}

// served is a socket whose questions a guest takes.
func served(t *testing.T) *net.UnixListener {
	t.Helper()
	s := &server{}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), askSocket), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	go s.serveAsks(l)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// However many ask, so many are taken at once, and the others wait.
func TestAskFlood(t *testing.T) {
	l := served(t)
	const most = 40
	for range most { // with a listen queue behind them, of which the kernel holds a bound
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	time.Sleep(3 * mostAsks * time.Second / askRate / 2)
	taken := 0
	for _, e := range must(os.ReadDir("/proc/self/fd")) {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			taken++
		}
	}
	if ends := taken - most - 1; ends > mostAsks+1 {
		t.Errorf("%d are taken at once, of %d at most", ends, mostAsks)
	}
}

// However fast one asks after the other, no more are taken than the rate and the burst allow.
func TestAskRate(t *testing.T) {
	l := served(t)
	const asked = 30
	began := time.Now()
	for range asked {
		c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.SetDeadline(began.Add(time.Minute)), c.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	// The one after the burst waits, and each one after that.
	if took, least := time.Since(began), (asked-askBurst-1)*time.Second/askRate; took < least {
		t.Errorf("%d were taken in %s, which are to take %s at least", asked, took, least)
	}
}

func must(e []os.DirEntry, err error) []os.DirEntry {
	if err != nil {
		panic(err)
	}
	return e
}

// The script is the first word that is no option: the value of one is none.
func TestScriptFile(t *testing.T) {
	s := &wire.Stub{Name: "x", Script: true, Takes: []string{"--time", "-t"}, NoScript: []string{"--wrap"}}
	for words, want := range map[string]string{
		"a.sh b": "a.sh", "-t 5 a.sh": "a.sh", "--time=5 a.sh": "a.sh", "-t5 --wait a.sh": "a.sh", "-- -a.sh": "-a.sh", "--wait": "", "--wrap=x a.sh": "none", "--wrap x": "none", "-t": "",
	} {
		file, reads := scriptFile(s, strings.Fields(words))
		if !reads {
			file = "none"
		}
		if file != want {
			t.Errorf("%s: %q, want %q", words, file, want)
		}
	}
}
