//go:build linux

package network

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A connection through the transparent door is taken from the guest by the supervisor, and
// much data comes back whole.
func TestTaken(t *testing.T) {
	needNode(t)
	c := berth(t, "exec", "--stdin", "--backend", "bwrap", "--env", "taken", "--network", "allow", "--allow", "raw.test:4000", "--", "bash", "-c", `
		exec 3<>/dev/tcp/raw.test/4000
		head -c 20000000 /dev/urandom >data; cat data >&3 & head -c 20000000 <&3 | cmp - data && echo same
		read -r`)
	defer func() {
		if got := run(t, berth(t, "env", "rm", "--force", "taken")); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}()
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	c.Stderr = os.Stderr
	must(t, c.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "same\n" {
		t.Errorf("%q %v", line, err)
	}
	guests, keepers := commandLines("berth-room\x00guest\x00"), commandLines("/envs/taken\x00")
	if len(guests) != 1 || len(keepers) != 1 {
		t.Fatalf("%v %v", guests, keepers)
	}
	inode := established(t, guests[0], 4000)
	if inode == "" || !slices.Contains(sockets(keepers[0]), inode) {
		t.Errorf("%q is the connection; the supervisor has %v", inode, sockets(keepers[0]))
	}
	_, _ = fmt.Fprintln(in)
	must(t, c.Wait())
}

// commandLines are the processes with a text on their command lines.
func commandLines(text string) (dirs []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), text) {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	return dirs
}

// sockets are the inodes of those that a process has open.
func sockets(dir string) (inodes []string) {
	all, _ := filepath.Glob(dir + "/fd/*")
	for _, f := range all {
		if at, err := os.Readlink(f); err == nil && strings.HasPrefix(at, "socket:[") {
			inodes = append(inodes, strings.Trim(at, "socket:[]"))
		}
	}
	return inodes
}

// established is the inode of the connection that came to a port of a process' network.
func established(t *testing.T, dir string, port int) string {
	t.Helper()
	b, err := os.ReadFile(dir + "/net/tcp")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "01" {
			return f[9]
		}
	}
	return ""
}
