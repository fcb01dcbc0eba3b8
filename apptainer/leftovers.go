package apptainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/sys/lease"
	"berth/internal/sys/private"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Remove removes the files of an environment, which its containers have written
// and which need more than a removal by name. What is recorded of it stays, and
// so do images, which are for all environments.
func (*Backend) Remove(ctx context.Context, s *jobs.EnvSpec, on jobs.Starter) error {
	dir, err := store.OwnEnvDir(s)
	if err != nil || dir == "" {
		return err
	}
	return run.RemoveFiles(ctx, on, filepath.Join(dir, dirOverlay))
}

// whatScratch is a keeper's directory on the node's scratch.
const whatScratch = "directory"

// List finds the scratch directories of environments whose keepers are provably
// gone. A container is a child of its keeper and ends with it; where even the
// container program was killed, helper processes of its file system may be left,
// and the directory is then called running.
func (b *Backend) List(context.Context, jobs.Starter) ([]jobs.Found, error) {
	var out []jobs.Found
	for _, base := range scratchBases(os.Getenv) {
		entries, err := os.ReadDir(base)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(base, e.Name())
			if s := abandoned(dir); s != nil {
				f := jobs.Found{Backend: b.Name(), ID: s.ID, Name: s.Name, What: whatScratch,
					Ref: dir, Running: len(naming(dir)) > 0, Home: s.Home}
				if fi, err := e.Info(); err == nil {
					f.Created = fi.ModTime()
				}
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// Reap ends what still runs of a directory that List has found, and removes it.
func (*Backend) Reap(ctx context.Context, on jobs.Starter, f jobs.Found) error {
	if f.What != whatScratch || abandoned(f.Ref) == nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: f.Ref + " is nothing that an environment has left"}
	}
	for _, pid := range naming(f.Ref) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("end process %d", pid), Err: err}
		}
	}
	return run.RemoveFiles(ctx, on, f.Ref)
}

// scratchBases are where a keeper's scratch directory may be.
func scratchBases(getenv func(string) string) (out []string) {
	for _, dir := range []string{getenv("TMPDIR"), "/tmp", "/var/tmp"} {
		if filepath.IsAbs(dir) && !slices.Contains(out, filepath.Clean(dir)) {
			out = append(out, private.ScratchPlaces(filepath.Clean(dir))...)
		}
	}
	return out
}

// abandoned returns the environment of a scratch directory of this user whose
// keeper is provably gone, by the mark in it (package container), else nil.
func abandoned(dir string) *jobs.EnvSpec {
	if !strings.HasPrefix(filepath.Base(dir), fmt.Sprintf("berth-%d-", os.Getuid())) {
		return nil
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return nil
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(dir, ".owner.json"))
	if err != nil {
		return nil
	}
	var o struct {
		lease.Process
		For string `json:"for"`
	}
	if json.Unmarshal(b, &o) != nil || filepath.Base(filepath.Dir(o.For)) != "envs" || !o.Gone(lease.Self()) {
		return nil
	}
	s, err := store.LoadEnv(o.For)
	if jobs.KindOf(err) == jobs.KindNotFound {
		return &jobs.EnvSpec{Name: filepath.Base(o.For), Home: filepath.Dir(filepath.Dir(o.For))}
	}
	if err != nil || s.Backend != jobs.BackendSingularity {
		return nil
	}
	return s
}

// fuseHelpers are the programs that a container's file system lives in.
var fuseHelpers = []string{"squashfuse", "fuse-overlayfs", "fuse2fs"}

// naming returns this user's helper processes of file systems that have a path
// below dir on their command line.
func naming(dir string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !strings.Contains(string(b), dir+"/") {
			continue
		}
		program, _, _ := strings.Cut(string(b), "\x00")
		if slices.ContainsFunc(fuseHelpers, func(name string) bool { return strings.HasPrefix(filepath.Base(program), name) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}
