//go:build cluster

package apptainer

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/sys/run"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// The guest answers in a container of each driver; afterwards nothing is left:
// no process, no helper, no mount; also when the guest's keeper closes on it.
func TestGuest(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	b := warmBench(t)
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(d, func(t *testing.T) {
			var fastest time.Duration
			for range 4 {
				began := time.Now()
				op := b.must(driver(d))
				var said bytes.Buffer
				c, err := container.Open(t.Context(), container.Options{Opening: op, On: run.Local{}, User: os.Getenv("USER"), Stderr: &said, Log: slog.New(slog.DiscardHandler),
					Start: 3 * time.Minute, GuestWait: 3 * time.Minute, Unmount: func() time.Duration { return time.Minute }, Note: func(s string) { t.Log(s) }})
				if err != nil {
					t.Fatalf("%v\n%s", err, said.String())
				}
				var out bytes.Buffer
				p, err := c.Session().Start(session.StartRequest{Command: jobs.Command{Shell: "echo $HOME; id -u; touch $HOME/x && echo kept"}}, &out, &out)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Wait(); err != nil {
					t.Error(err)
				}
				took := time.Since(began)
				if fastest == 0 || took < fastest {
					fastest = took
				}
				if want := fmt.Sprintf("%s\n%d\nkept\n", os.Getenv("HOME"), os.Getuid()); out.String() != want {
					t.Errorf("%q, want %q", out.String(), want)
				}
				own := 0
				for _, line := range processes(t) {
					if strings.Contains(line, "overlay-mount") {
						own++
					}
				}
				if own != 0 {
					t.Error("the program that mounted has stayed")
				}
				c.Close()
				b.close(op)
				if left := processes(t); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			}
			t.Logf("%s: the first command of a cold environment has ended after %v", d, fastest.Round(100*time.Microsecond))
		})
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), b.home) {
		t.Errorf("mounts are left: %v", err)
	}
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		if _, err := os.Stat(filepath.Join(b.home, "envs", d, "overlay", "mark.json")); err != nil {
			t.Error(err)
		}
	}
}

// processes are all below this one.
func processes(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=,args=", "--ppid", fmt.Sprint(os.Getpid())).Output()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return l == "" || strings.Contains(l, "ps -o pid=") })
}
