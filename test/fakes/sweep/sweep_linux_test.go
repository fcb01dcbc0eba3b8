package sweep

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// No one sees the end of what it has begun, and what has left its parents ends
// too, by its environment or its directory.
func TestEnd(t *testing.T) {
	for i := range 10 {
		dir, here := t.TempDir(), t.TempDir()
		mark := "SWEEP_TEST=" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(i)
		cmd := exec.Command("/bin/bash", "-c", `
			(cd "$1"; env -i /usr/bin/setsid -f /bin/bash -c 'echo $$ >here; sleep 300; echo seen >seen') </dev/null >/dev/null 2>&1
			setsid -f bash -c 'echo $$ >away; sleep 300; echo seen >seen' </dev/null >/dev/null 2>&1
			until [ -s away ] && [ -s "$1/here" ]; do sleep 0.01; done
			(sleep 300; echo seen >seen)&
			(setsid sleep 300; echo seen >seen)&
			echo ready; wait; echo seen >seen`, "bash", here)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), mark)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatal(line, err)
		}
		End(Mark{Env: mark, Dir: here}, cmd.Process.Pid)
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Error(cmd.ProcessState)
		}
		for _, name := range []string{filepath.Join(dir, "away"), filepath.Join(here, "here")} {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				t.Errorf("%s lives: %s", name, stat)
			}
		}
		time.Sleep(10 * time.Millisecond)
		for _, d := range []string{dir, here} {
			if _, err := os.Stat(filepath.Join(d, "seen")); err == nil {
				t.Fatal("somebody saw another one's end")
			}
		}
	}
}
