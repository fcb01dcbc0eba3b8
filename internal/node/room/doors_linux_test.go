package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// doorsContainer is the part of a container without a network, which begins two rooms with doors.
const doorsContainer = "doors"

// credentialPort is one of a room's loopback that has a name.
const credentialPort = 4711

// beDoorsContainer begins two rooms, the first of which stays, with a server of its own.
func beDoorsContainer() error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""), os.Setenv(roleVar, ownFirst)); err != nil {
		return err
	}
	judge := Judge{
		Ask: func(name string) ([]uint16, bool) { return []uint16{80}, name == "good.example" },
		Flow: func(c *Conn) {
			_, _ = fmt.Fprintf(c, "%q %s %d %q", c.Name, c.Addr, c.Port, c.Door)
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		},
	}
	doors := &Doors{Literals: []Literal{{netip.MustParsePrefix("192.0.2.7/32"), []uint16{5432}}}, Ports: []Port{{credentialPort, "key"}}}
	seen := map[string]map[string]string{}
	for _, name := range []string{"first", "second"} {
		own := &Own{Home: "/var/tmp/home", Scratch: "/tmp/scratch-" + name}
		if err := os.Mkdir(own.Scratch, 0o700); err != nil {
			return err
		}
		s, pid, found, err := beginOwn(Options{Own: own, Doors: doors}, judge, "doors", name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		seen[name] = found
		if name == "second" {
			if err := endOwn(s, pid); err != nil {
				return err
			}
		}
		defer s.Close()
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// doorsTask tells what a command reaches in a room with doors.
func doorsTask(name string) int {
	seen := map[string]string{}
	for _, fd := range []int{outsideFD, doorsFD} {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			seen["a descriptor of the room's"] = fmt.Sprint(fd)
		}
	}
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true}, Timeout: 10 * time.Second}
	for what, to := range map[string]string{
		"a name": "good.example:80", "the name again": "good.example:80", "its other ports": "good.example:81", "another name": "bad.example:80",
		"an address": "192.0.2.7:5432", "its other ports by number": "192.0.2.7:80", "another address": "192.0.2.8:5432",
		"a port with a name": fmt.Sprint("127.0.0.1:", credentialPort), "the first one's server": "127.0.0.1:8765",
	} {
		c, err := d.DialContext(context.Background(), "tcp", to)
		var errno syscall.Errno
		var no *net.DNSError
		switch {
		case errors.As(err, &errno):
			seen[what] = unix.ErrnoName(errno)
		case errors.As(err, &no) && no.IsNotFound:
			seen[what] = "NXDOMAIN"
		case err != nil:
			seen[what] = err.Error()
		default:
			b, err := io.ReadAll(c)
			_ = c.Close()
			if seen[what] = string(b); err != nil {
				seen[what] += err.Error()
			}
		}
	}
	if _, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:8765"); err != nil {
		seen["a server"] = err.Error()
	}
	seen["capabilities"], _ = status("CapEff")
	check(json.NewEncoder(os.Stdout).Encode(seen))
	if name == "first" {
		select {}
	}
	return 5
}

// TestDoors: each of two rooms below a container without a network reaches what is allowed by
// its own doors, and nothing else, not the other one's servers.
func TestDoors(t *testing.T) {
	needRooms(t)
	c := start(t, doorsContainer, true)
	uid := os.Getuid()
	if uid == 0 {
		uid = 65534
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET,
		UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{NoSetGroups: true}, Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	out, err := c.Output()
	must(t, err)
	var seen map[string]map[string]string
	must(t, json.Unmarshal(out, &seen))
	want := map[string]string{
		"a name": `"good.example" 198.18.0.1 80 ""`, "the name again": `"good.example" 198.18.0.1 80 ""`, "its other ports": "ECONNREFUSED",
		"another name": "NXDOMAIN",
		"an address":   `"" 192.0.2.7 5432 ""`, "its other ports by number": "ECONNREFUSED", "another address": "ENETUNREACH",
		"a port with a name": `"" 127.0.0.1 4711 "key"`, "the first one's server": "ECONNREFUSED", "capabilities": "\t0000000000000000\n",
	}
	for _, room := range []string{"first", "second"} {
		if !maps.Equal(seen[room], want) {
			t.Errorf("%s: %q", room, seen[room])
		}
	}
}
