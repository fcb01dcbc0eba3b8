//go:build linux

package pool

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// The scheduler's programs.
const (
	verbShepherd = "pool-shepherd" // YARD TICKET
	verbJoin     = "pool-join"     // YARD TICKET NODE ARGV...
	verbFan      = "pool-fan"      // SEATS ARGV...
)

// Is reports whether a command line, without the program, is one of the pool's.
func Is(args []string) bool {
	return len(args) > 2 && slices.Contains([]string{verbShepherd, verbJoin, verbFan}, args[0])
}

// Main runs it and returns the exit code of the process.
func Main(args []string) int {
	switch {
	case args[0] == verbShepherd:
		return shepherdMain(yard(args[1]), args[2])
	case args[0] == verbJoin && len(args) > 4:
		return stepMain(yard(args[1]), args[2], args[3], args[4:])
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || args[0] != verbFan || n < 1 {
		fmt.Fprintf(os.Stderr, "pool: %q is no command line\n", args)
		return 2
	}
	return fan(n, args[2:])
}

// fan runs argv in so many seats: each gets all of the input, every line of their
// output begins with the number of its seat, and the worst exit code counts.
func fan(n int, argv []string) int {
	var out sync.Mutex
	var wait sync.WaitGroup
	var inputs []io.WriteCloser
	var all []*exec.Cmd
	codes := make([]int, n)
	for i := range n {
		c := exec.Command(argv[0], argv[1:]...)
		c.Env = append(os.Environ(), "POOL_SEAT="+strconv.Itoa(i))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		r, w, perr := os.Pipe()
		if err == nil {
			err = perr
		}
		if err == nil {
			c.Stdout = w
			err = c.Start()
			_ = w.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "pool-fan: seat %d: %v\n", i, err)
			return 1
		}
		inputs, all = append(inputs, in), append(all, c)
		wait.Go(func() {
			lines := bufio.NewReader(r)
			for {
				line, err := lines.ReadBytes('\n')
				if len(line) > 0 {
					out.Lock()
					fmt.Printf("%d: %s\n", i, bytes.TrimSuffix(line, []byte("\n")))
					out.Unlock()
				}
				if err != nil {
					break
				}
			}
			_ = c.Wait()
			if codes[i] = c.ProcessState.ExitCode(); codes[i] != 0 {
				fmt.Fprintf(os.Stderr, "pool-fan: seat %d fell: %s\n", i, c.ProcessState)
				codes[i] = max(codes[i], 1)
			}
		})
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go func() {
		<-terms
		for _, c := range all {
			_ = c.Process.Kill()
		}
	}()
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			for _, w := range inputs {
				_, _ = w.Write(line)
				if err != nil {
					_ = w.Close()
				}
			}
			if err != nil {
				return
			}
		}
	}()
	wait.Wait()
	return slices.Max(codes)
}
