package cli_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/cli"
	"berth/internal/config/sitefile"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the tests find into the golden files")

// TestMain makes this one binary all the programs of the scripts: berth, the
// program that berth installs for the nodes, and strict stand-ins for Slurm's
// commands and for apptainer. Which one it is follows from its name.
func TestMain(m *testing.M) {
	sitefile.Path, sitefile.Owner = siteFile(), uint32(os.Getuid())
	name := filepath.Base(os.Args[0])
	switch {
	case strings.HasPrefix(name, "berth-"), name == filepath.Base(guestPath): // a copy of it, too
		leave(engine.NodeMain(os.Args[1:]))
	case strings.HasPrefix(name, "berth."): // a copy that was put on a host
		leave(berth(os.Args[1:]))
	case name == containerInit:
		leave(containerMain(os.Args[1:]))
	}
	programs := map[string]func(){"berth": func() {
		cli.CompleteFor(10 * time.Second) // the machine may be busy
		leave(berth(os.Args[1:]))
	}}
	for name, run := range fakes {
		programs[name] = func() { leave(run(os.Args[1:])) }
	}
	testscript.Main(m, programs)
}

// siteFile is a script's in place of the machine's own: that of a program that is
// installed is fixed when it is linked. Jobs have no variables of their submitter's.
func siteFile() string {
	for _, word := range append([]string{os.Getenv("BERTH_HOME") + "/"}, os.Args...) {
		if work, _, ok := strings.Cut(word, "/state/"); ok {
			return filepath.Join(work, "etc", "site.toml")
		}
	}
	return "/nowhere/site.toml"
}

// leave ends this process. The race detector makes os.Exit sleep for a second,
// which counts in a test of some two hundred processes; counters of coverage
// are written only by os.Exit.
func leave(code int) {
	if os.Getenv("GOCOVERDIR") != "" {
		os.Exit(code)
	}
	syscall.Exit(code)
}

// berth is what cmd/berth's main does.
func berth(args []string) int {
	engine.Main()
	// A second ctrl-C comes from a test that may stand still for longer than a
	// person waits.
	if d, err := time.ParseDuration(os.Getenv("BERTH_TEST_SECOND")); err == nil {
		cli.SecondWithin(d)
	}
	return cli.Main(args)
}

// fakes are the programs of a cluster, by name.
var fakes = map[string]func(args []string) int{
	"sbatch": sbatch, "squeue": squeue, "sacct": sacct, "scancel": scancel, "scontrol": scontrol, "sinfo": sinfo, "sacctmgr": sacctmgr,
	"scrontab": scrontab, "crontab": crontab, "slurmstepd": slurmstepd, "apptainer": apptainer, "docker": docker, "listener": listener,
}

// strictly compares a fake's arguments with the only ones that berth may use.
// A want of "*" stands for any one word.
func strictly(program string, args []string, wants ...[]string) bool {
	for _, want := range wants {
		if len(args) == len(want) && !slices.ContainsFunc(zip(args, want), func(p [2]string) bool { return p[1] != "*" && p[0] != p[1] }) {
			return true
		}
	}
	return false
}

func zip(a, b []string) [][2]string {
	out := make([][2]string, len(a))
	for i := range a {
		out[i] = [2]string{a[i], b[i]}
	}
	return out
}
