// Package limits has the limits of an environment's memory and CPUs held where its
// container program holds none itself.
package limits

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"berth/internal/images"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Hold has the limits of an environment held: by the cgroup of the Slurm job that
// this runs in, else by a scope of the user's systemd, which try tries, else by the
// keeper, which can only watch.
func Hold(ctx context.Context, s *jobs.EnvSpec, op *jobs.Opening, try func(ctx context.Context, argv []string) error) error {
	res := s.Resources
	if res.Memory == 0 && res.CPUs == 0 {
		return nil
	}
	if got, ok := JobMemory(); ok {
		if res.Memory == 0 || got != 0 && got <= res.Memory+res.Memory/10 {
			return nil
		}
		op.Memory = res.Memory
		op.Notes = append(op.Notes, fmt.Sprintf("memory %s is less than the job has: it is watched, advisory", res.Memory))
		return strictly(s, "memory", "the job's cgroup allows more")
	}
	if program := SystemdRun(); program != "" && try(ctx, []string{program, "--user", "--scope", "--quiet", "true"}) == nil {
		op.Argv = scopeArgv(program, res, op.Argv)
		// systemd is to be asked from the host's own namespaces.
		op.OwnMounts = false
		return nil
	}
	const nothing = "there is no Slurm job and no systemd of this user that could hold it"
	if res.Memory != 0 {
		if err := strictly(s, "memory", nothing); err != nil {
			return err
		}
		op.Memory = res.Memory
		op.Notes = append(op.Notes, fmt.Sprintf("memory %s is watched, advisory: %s", res.Memory, nothing))
	}
	if res.CPUs != 0 {
		if s.Strict || !slices.Contains(s.Defaulted, "cpus") {
			return unheld("cpus", nothing)
		}
		op.Notes = append(op.Notes, fmt.Sprintf("the limit of %s is dropped: %s", jobs.Plural(res.CPUs, "CPU"), nothing))
	}
	return nil
}

// Try runs a command to its end, from the host's own namespaces.
func Try(ctx context.Context, on jobs.Starter, argv, env []string) error {
	_, err := run.Output(ctx, on, jobs.Cmd{Argv: argv, Dir: "/", Env: env})
	return err
}

// strictly refuses a limit that can only be watched when the environment is to
// be strict.
func strictly(s *jobs.EnvSpec, limit, why string) error {
	if !s.Strict {
		return nil
	}
	return unheld(limit, why)
}

func unheld(limit, why string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + limit + " cannot be held on " + images.Hostname() + ": " + why,
		Hint: "open it in a Slurm job of that size, or leave the limit out"}
}

// SystemdRun returns the program by which a limit can be held in a scope of the
// user's systemd, where systemd is this machine's init (sd_booted(3)) and the user
// has a manager of its own to ask; else "". Whether that works is seen when it is
// asked: systemd-run --user --scope true.
func SystemdRun() string {
	if fi, err := os.Stat("/run/systemd/system"); err != nil || !fi.IsDir() {
		return ""
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) || !slices.ContainsFunc([]string{"bus", "systemd/private"}, func(f string) bool {
		_, err := os.Stat(filepath.Join(dir, f))
		return err == nil
	}) {
		return ""
	}
	p, err := exec.LookPath("systemd-run")
	if err != nil {
		return ""
	}
	return p
}

// tasksMax bounds the processes of a scope: a fork bomb inside must not take
// the user's own sessions with it.
const tasksMax = 8192

// scopeArgv runs argv in a scope of the user's systemd (systemd-run(1)), which
// becomes argv itself. Swap would let it pass the limit of memory.
func scopeArgv(systemdRun string, res jobs.Resources, argv []string) []string {
	out := []string{systemdRun, "--user", "--scope", "--quiet", "--collect", "-p", "TasksMax=" + strconv.Itoa(tasksMax)}
	if res.Memory != 0 {
		out = append(out, "-p", "MemoryMax="+strconv.FormatInt(int64(res.Memory), 10), "-p", "MemorySwapMax=0")
	}
	if res.CPUs != 0 {
		out = append(out, "-p", "CPUQuota="+strconv.Itoa(res.CPUs*100)+"%")
	}
	return append(append(out, "--"), argv...)
}
