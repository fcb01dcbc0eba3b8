// Package headless is for tests of what looks at processes: one whose first
// thread has ended goes on, and looks like a zombie. So does each process of
// several threads for a moment when it becomes another program.
package headless

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Word as their only argument makes programs that import this package such a
// process, which says "ready" and lives for five minutes.
const Word = "headless"

// init ends the first thread: that is the thread of all init functions.
func init() { //nolint:gochecknoinits // only there it is known which thread that is
	if len(os.Args) == 2 && os.Args[1] == Word {
		go func() {
			fmt.Println("ready")
			time.Sleep(5 * time.Minute)
			os.Exit(0)
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// Start starts one and returns when its first thread has ended. It is killed
// when the test ends.
func Start(t testing.TB) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, Word)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if bytes.Contains(b, []byte(") Z ")) {
			return cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("its first thread goes on: %s", b)
		}
	}
}
