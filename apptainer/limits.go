package apptainer

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

// limit has the limits of the environment held: by the cgroup of the Slurm job
// that this runs in, else by a scope of the user's systemd, else by the keeper,
// which can only watch. The container program's own flags for limits are fatal
// without systemd as init.
func (o *opener) limit(ctx context.Context, op *jobs.Opening) error {
	res := o.spec.Resources
	if res.Memory == 0 && res.CPUs == 0 {
		return nil
	}
	if got, ok := jobMemory(); ok {
		if res.Memory == 0 || got != 0 && got <= res.Memory+res.Memory/10 {
			return nil
		}
		op.Memory = res.Memory
		op.Notes = append(op.Notes, fmt.Sprintf("memory %s is less than the job has: it is watched, advisory", res.Memory))
		return o.strictly("memory", "the job's cgroup allows more")
	}
	if systemdRun := findSystemdRun(); systemdRun != "" {
		f := o.probe(ctx, []string{"systemd", "scope"}, func(ctx context.Context) error {
			_, err := run.Output(ctx, o.at.On, jobs.Cmd{Argv: []string{systemdRun, "--user", "--scope", "--quiet", "true"}, Dir: "/", Env: op.Env})
			return err
		})
		if f.OK {
			op.Argv = scopeArgv(systemdRun, res, op.Argv)
			// systemd is to be asked from the host's own namespaces.
			op.OwnMounts = false
			return nil
		}
	}
	const nothing = "there is no Slurm job and no systemd of this user that could hold it"
	if res.Memory != 0 {
		if err := o.strictly("memory", nothing); err != nil {
			return err
		}
		op.Memory = res.Memory
		op.Notes = append(op.Notes, fmt.Sprintf("memory %s is watched, advisory: %s", res.Memory, nothing))
	}
	if res.CPUs != 0 {
		if o.spec.Strict || !slices.Contains(o.spec.Defaulted, "cpus") {
			return o.unheld("cpus", nothing)
		}
		op.Notes = append(op.Notes, fmt.Sprintf("the limit of %d CPUs is dropped: %s", res.CPUs, nothing))
	}
	return nil
}

// strictly refuses a limit that can only be watched when the environment is to
// be strict.
func (o *opener) strictly(limit, why string) error {
	if !o.spec.Strict {
		return nil
	}
	return o.unheld(limit, why)
}

func (o *opener) unheld(limit, why string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + limit + " cannot be held on " + images.Hostname() + ": " + why,
		Hint: "open it in a Slurm job of that size, or leave the limit out"}
}

// SystemdRun returns the program by which a limit can be held in a scope of the
// user's systemd, or "" where there is none. Whether that works is seen when it
// is asked: systemd-run --user --scope true.
func SystemdRun() string { return findSystemdRun() }

// findSystemdRun returns the program where systemd is this machine's init
// (sd_booted(3)) and the user has a manager of its own to ask.
func findSystemdRun() string {
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
