//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm"
)

// host runs a shell text on the machine of the keeper, past berth.
func (p *place) host(text, stdin string) (string, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	argv := []string{"sh", "-c", text}
	switch {
	case scheduler() != "":
		argv = p.onNode(ctx, text)
	case backend() == jobs.BackendSSH:
		argv = []string{"ssh", "-o", "BatchMode=yes", "-o", "ControlPath=none", p.v.Spec.SSH.Host, text}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", text, err, errs.String())
	}
	return string(out), nil
}

// onNode is the command that runs a shell text where a held environment is kept,
// or was last: beside it, or as a job of its own.
func (p *place) onNode(ctx context.Context, text string) []string {
	// It begins without an environment.
	argv := []string{"/bin/sh", "-c", "PATH=/usr/bin:/bin; export PATH; " + text}
	if at := p.v.Show(ctx, true).Allocation; at != nil {
		p.node = at.Node
		return slurm.New(nil, slurm.Config{}).Step(jobs.Handle{NativeID: at.ID}, "", argv).Argv
	}
	return append([]string{"srun", "--quiet", "--ntasks=1", "--export=NONE", "--nodelist=" + p.node, "--"}, argv...)
}

// mustHost is host for what has to work.
func (p *place) mustHost(text string) string {
	p.t.Helper()
	out, err := p.host(text, "")
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// look asks this program, as a process on the keeper's machine.
func (p *place) look(what string, lines ...string) []string {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	// What to look for is not on the command line, where it would be found.
	out, err := p.host(roleVar+"="+roleLook+" "+self+" "+what, strings.Join(lines, "\n"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(out, "\n"), "\n")[1:]
}

// look is that process: "tree" lists the processes at and below those given,
// "alive" those that are still there, "left" what bears one of the words.
func look(args []string) int {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	given := strings.Fields(string(text))
	say := func(word string) { _, _ = fmt.Fprintln(os.Stdout, word) }
	say(args[0])
	all := processes()
	switch args[0] {
	case "tree":
		in := map[int]bool{}
		for _, g := range given {
			pid, _ := strconv.Atoi(g)
			in[pid] = true
		}
		for grown := true; grown; {
			grown = false
			for pid, p := range all {
				if in[p.parent] && !in[pid] {
					in[pid], grown = true, true
				}
			}
		}
		for pid := range in {
			if p, ok := all[pid]; ok {
				say(p.id + " " + p.name)
			}
		}
	case "alive":
		for _, g := range given {
			pid, _, _ := strings.Cut(g, ":")
			n, _ := strconv.Atoi(pid)
			if p, ok := all[n]; ok && p.id == g {
				say(p.id + " " + p.name + " " + commandLine(n))
			}
		}
	case "left":
		for _, word := range given {
			for pid := range all {
				if l := commandLine(pid); strings.Contains(l, word) {
					say(fmt.Sprint("process ", pid, " ", l))
				}
			}
			mounts, _ := os.ReadFile("/proc/self/mountinfo")
			for l := range strings.Lines(string(mounts)) {
				if strings.Contains(l, word) {
					say("mount " + strings.TrimSpace(l))
				}
			}
			for _, dir := range []string{"/tmp", "/var/tmp"} {
				found, _ := filepath.Glob(dir + "/berth-*" + word + "*")
				below, _ := filepath.Glob(dir + "/berth-*-scratch/*" + word + "*")
				for _, f := range append(found, below...) {
					say("directory " + f)
				}
			}
			if fi, err := os.Lstat(word); err == nil && fi.Mode()&os.ModeSocket != 0 {
				say("socket " + word)
			}
		}
	}
	return 0
}

// proc is a process that has not ended.
type proc struct {
	parent   int
	name, id string // id tells it from later ones of the same number
}

func processes() map[int]proc {
	out := map[int]proc{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if err != nil || open < 0 || shut < open {
			continue
		}
		f := strings.Fields(string(b[shut+1:]))
		if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		out[pid] = proc{parent: parent, name: strings.ReplaceAll(string(b[open+1:shut]), " ", "_"), id: fmt.Sprint(pid, ":", f[19])}
	}
	return out
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
}

// eventually waits until something is so.
func (p *place) eventually(what string, within time.Duration, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(within); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("not within %v: %s", within, what)
		}
	}
}
