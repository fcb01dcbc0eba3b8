package apptainer

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"berth/jobs"
	"berth/overlay"
)

// Words of [TryMain].
const (
	tryChange  = "change"
	tryLook    = "look"
	tryNetwork = "network"
)

// TryMain is the verb try of berth-node, which runs inside a container that is
// thrown away and tells whether that is what it was meant to be: its layer
// ("change", then "look" in a second container), its network ("network": there
// is none). What it found is on the standard output. It ends with its standard
// input: then its parent is gone, and no other process would end it.
func TryMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	code := make(chan int, 2)
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		code <- jobs.CodeAgain
	}()
	go func() { code <- try(args, stdout, stderr) }()
	return <-code
}

func try(args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 1 && args[0] == tryChange:
		err = overlay.TryChange("/")
	case len(args) == 1 && args[0] == tryLook:
		err = overlay.TryLook("/")
	case len(args) == 1 && args[0] == tryNetwork:
		err = noNetwork("/proc/net/dev")
	default:
		_, _ = fmt.Fprintln(stderr, "usage: try change|look|network")
		return jobs.CodeUsage
	}
	if err != nil {
		_, _ = fmt.Fprintln(stdout, err)
		return jobs.CodeTaskFailed
	}
	return jobs.CodeOK
}

// noNetwork reads a list of network devices (proc(5)) and is content when there
// is none but the loopback. /sys/class/net shows the host's all the same.
func noNetwork(list string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, _, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":"); ok && name != "lo" {
			return fmt.Errorf("the network device %s is there", name)
		}
	}
	return lines.Err()
}
