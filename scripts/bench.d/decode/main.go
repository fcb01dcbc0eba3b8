// Command decode measures what reading an agent's events costs, for scripts/bench: 100 MB of
// a recorded stream, said again and again, in pieces as a pipe brings them. The lines
// "KEY VALUE" on stdout are the time of the CPU in percent of a minute, and the most memory
// that was resident, in KiB, beside what it was before.
//
//	decode KEY FORMAT FILE BYTES
//
// What tools have answered in FILE is so many bytes instead; 0 leaves it.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/agents"
)

const (
	total = 100e6    // bytes
	piece = 32 << 10 // bytes, as io.Copy reads
)

// answers are those of tools in the recorded streams.
var answers = []string{`"hello"`, `"hello\n"`, `"ok\texample/parse"`}

func main() {
	if err := measure(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "decode:", err)
		os.Exit(1)
	}
}

func measure(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("usage: decode KEY FORMAT FILE BYTES")
	}
	key, format := args[0], args[1]
	stream, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	if size > 0 {
		const line = "ok  \tberth/jobs\t0.3s\n"
		text, err := json.Marshal(strings.Repeat(line, size/len(line)))
		if err != nil {
			return err
		}
		found := 0
		for _, a := range answers {
			found += bytes.Count(stream, []byte(a))
			stream = bytes.ReplaceAll(stream, []byte(a), text)
		}
		if found == 0 {
			return fmt.Errorf("no tool has answered in %s", args[2])
		}
	}
	d, err := agents.NewDecoder(format, func(agents.Event) {})
	if err != nil {
		return err
	}
	before, err := resident()
	if err != nil {
		return err
	}
	began, done := cpu(), 0
	for done < total {
		for at := 0; at < len(stream); at += piece {
			_, _ = d.Write(stream[at:min(at+piece, len(stream))])
		}
		done += len(stream)
	}
	d.Close()
	used := cpu() - began
	after, err := resident()
	if err != nil {
		return err
	}
	if d.Seen.Text+d.Seen.Unknown+d.Seen.Long > 0 || d.Seen.Events == 0 {
		return fmt.Errorf("%s: not all lines were read as events: %+v", args[2], d.Seen)
	}
	fmt.Printf("%s_cpu %.3f\n%s_kib %d\n%s_line %d\n", key, used*total/float64(done)/60*100, key, after-before, key, done/d.Seen.Lines)
	return nil
}

// cpu is the time of the CPU that this process has had, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// resident is the most memory that was resident, in KiB.
func resident() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("/proc/self/status has no VmHWM")
	}
	return strconv.Atoi(fields[0])
}
