package apptainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

func TestArgvForms(t *testing.T) {
	for name, c := range map[string]struct {
		place     jobs.Invocation
		want, not string
	}{
		"kernel":   {jobs.Invocation{Place: jobs.Place{Overlay: jobs.OverlaySpec{Driver: jobs.DriverKernel}}}, " --workdir {scratch} --userns --mount type=bind,source=/n,destination=/.berth/node,readonly --mount type=bind,source={empty},destination=/.singularity.d/env,readonly --mount type=bind,source={keys},destination=/proc/keys,readonly --mount type=bind,source={keys},destination=/proc/key-users,readonly --mount type=bind,source={cgroups},destination=/sys/fs/cgroup,readonly --writable {image} /.berth/node guest", "--overlay"},
		"ext3":     {jobs.Invocation{Place: jobs.Place{Overlay: jobs.OverlaySpec{Driver: jobs.DriverExt3}}}, " --overlay {overlay} ", "--writable"},
		"fakeroot": {jobs.Invocation{Place: jobs.Place{Fakeroot: true}}, " --overlay {overlay} --fakeroot ", "--net"},
		"none":     {jobs.Invocation{Place: jobs.Place{Network: jobs.Network{Mode: jobs.NetworkNone}}}, " --overlay {overlay} --net --network none ", "--fakeroot"},
	} {
		t.Run(name, func(t *testing.T) {
			c.place.Guest = "/n"
			argv, err := (&Backend{}).Argv(c.place, []string{"guest"})
			line := strings.Join(argv, " ")
			if err != nil || !strings.Contains(line, c.want) || strings.Contains(line, c.not) {
				t.Errorf("%v %s", err, line)
			}
		})
	}
	if _, err := (&Backend{}).Argv(jobs.Invocation{Guest: "/n", Place: jobs.Place{Network: jobs.Network{Mode: "bridge"}}}, nil); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("another network: %v", err)
	}
}

func TestSubIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(path, []byte("alice:100000:65536\n1001:165536:65536\nbroken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		uid  int
		want bool
	}{{"alice", 5, true}, {"bob", 1001, true}, {"ali", 100, false}, {"broken", 7, false}} {
		if hasSubIDs(path, c.name, c.uid) != c.want {
			t.Errorf("%+v", c)
		}
	}
	if hasSubIDs(path+"x", "alice", 1) {
		t.Error("no file, and yet ids")
	}
}

func TestNoNetworkDevices(t *testing.T) {
	const head = "Inter-|   Receive\n face |bytes    packets\n"
	path := filepath.Join(t.TempDir(), "dev")
	for list, want := range map[string]string{
		head + "    lo:       0       0\n": "", head + "    lo: 1\n  eth0:  24488 247\n": "eth0", head: "", head + "wg0:5\n": "wg0",
	} {
		if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		err := noNetwork(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", list, err)
		}
	}
	if noNetwork(path+"x") == nil {
		t.Error("what cannot be read proves nothing")
	}
}

// What was found is asked once; what failed is asked again after a while; and
// what was broken off is not kept.
func TestProbe(t *testing.T) {
	o := &opener{spec: &jobs.EnvSpec{Home: t.TempDir()}, program: "/x", ways: true}
	asked := 0
	ask := func(err error) func(context.Context) error {
		return func(context.Context) error { asked++; return err }
	}
	for range 2 {
		if f := o.probe(t.Context(), []string{"a"}, ask(nil)); !f.OK {
			t.Errorf("%+v", f)
		}
		if f := o.probe(t.Context(), []string{"b"}, ask(errors.New("why not"))); f.OK || !strings.HasPrefix(f.Why, "why not") {
			t.Errorf("%+v", f)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	files, _ := filepath.Glob(filepath.Join(o.spec.Home, "probes", "*.json"))
	if len(files) != 2 {
		t.Fatal(files)
	}
	for _, path := range files {
		var f found
		b, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Time = f.Time.Add(-2 * probeAgain)
		if b, err = json.Marshal(f); err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o.probe(t.Context(), []string{"a"}, ask(nil))
	o.probe(t.Context(), []string{"b"}, ask(nil))
	if asked != 3 {
		t.Errorf("asked %d times after a while", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.probe(ctx, []string{"c"}, ask(ctx.Err()))
	if f := o.probe(t.Context(), []string{"c"}, ask(nil)); !f.OK {
		t.Error("what was broken off was kept")
	}
}

// What is refused is refused by a probe made now; and who is told of an older one,
// where there is another way, is told when that was and where it stands. A record
// of an older berth that holds a full disk counts as none.
func TestProbeRemembered(t *testing.T) {
	o := &opener{spec: &jobs.EnvSpec{Home: t.TempDir()}, program: "/x", ways: true}
	asked := 0
	ask := func(err error) func(context.Context) error {
		return func(context.Context) error { asked++; return err }
	}
	o.probe(t.Context(), []string{"a"}, ask(errors.New("no /dev/fuse")))
	if f := o.probe(t.Context(), []string{"a"}, ask(nil)); asked != 1 || f.OK || !strings.Contains(f.Why, "remembered in "+o.spec.Home) {
		t.Errorf("asked %d times: %+v", asked, f)
	}
	o.ways = false
	if f := o.probe(t.Context(), []string{"a"}, ask(nil)); asked != 2 || !f.OK {
		t.Errorf("refused by what is remembered: asked %d times: %+v", asked, f)
	}
	o.ways = true
	o.probe(t.Context(), []string{"b"}, ask(errors.New("why not")))
	files, _ := filepath.Glob(filepath.Join(o.spec.Home, "probes", "*.json"))
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Replace(string(b), "why not", "mkfs: No space left on device", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if f := o.probe(t.Context(), []string{"b"}, ask(nil)); !f.OK {
		t.Errorf("a full disk was remembered: %+v", f)
	}
}

// A probe that does not end in its time, or is killed, has found nothing: that is
// told as what it is, kept from no one's next try, and is no refusal.
func TestProbeCut(t *testing.T) {
	was := probeTime
	t.Cleanup(func() { probeTime = was })
	o := &opener{spec: &jobs.EnvSpec{Home: t.TempDir()}, program: "/x", at: jobs.OpenPlace{On: run.Local{}}}
	for name, ask := range map[string]func(context.Context) error{
		"slow": func(ctx context.Context) error { <-ctx.Done(); return errors.New("killed") },
		"killed": func(ctx context.Context) error {
			_, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: []string{"/bin/sh", "-c", "kill -9 $$"}})
			return err
		},
		"killed inside": func(ctx context.Context) error {
			_, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: []string{"/bin/sh", "-c", "exit 137"}})
			return err
		},
		"slow helper": func(context.Context) error {
			return errors.New("FATAL:   container creation failed: fuse2fs failed to mount /var/lib/apptainer/mnt/session/overlay-images/0 in 10s")
		},
		"full": func(context.Context) error {
			return &os.PathError{Op: "mkdir", Path: "/tmp/x", Err: syscall.ENOSPC}
		},
		"full, in words": func(context.Context) error { return errors.New("FATAL: while extracting: No space left on device") },
		"quota":          func(context.Context) error { return syscall.EDQUOT },
		"memory":         func(context.Context) error { return errors.New("fork/exec: Cannot allocate memory") },
		"broken disk":    func(context.Context) error { return fmt.Errorf("write: %w", syscall.EIO) },
		"in an earlier line": func(ctx context.Context) error {
			return (&opener{at: jobs.OpenPlace{On: run.Local{}}, spec: &jobs.EnvSpec{}}).tryArgv(ctx, []string{"/bin/sh", "-c", "echo mkfs: No space left on device >&2; echo FATAL: container creation failed >&2; exit 255"}, false)
		},
		"mapped file of a full tmpfs": func(ctx context.Context) error {
			_, err := run.Output(ctx, run.Local{}, jobs.Cmd{Argv: []string{"/bin/sh", "-c", "kill -BUS $$"}})
			return err
		},
	} {
		probeTime = was
		if name == "slow" {
			probeTime = time.Millisecond
		}
		f := o.probe(t.Context(), []string{name}, ask)
		if f.OK || !f.cut || f.Why == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if err := f.refuse("x"); jobs.KindOf(err) != jobs.KindInfra || jobs.HintOf(err) == "" || !strings.Contains(err.Error(), f.Why) {
			t.Errorf("%s: %v", name, err)
		}
		probeTime = was
		if f := o.probe(t.Context(), []string{name}, func(context.Context) error { return nil }); !f.OK {
			t.Errorf("%s was kept: %+v", name, f)
		}
	}
	probeTime = time.Millisecond // what works all the same does
	if f := o.probe(t.Context(), []string{"late"}, func(ctx context.Context) error { <-ctx.Done(); return nil }); !f.OK || f.cut {
		t.Errorf("%+v", f)
	}
}

// Where a container has a network although none was asked for, or cannot be
// had at all, the environment is refused and not opened with one.
func TestNetworkRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	program(t, dir, "apptainer", "echo the network device eth0 is there; exit 1", 0o755)
	s := &jobs.EnvSpec{Home: t.TempDir(), Name: "e", Place: jobs.Place{Image: dir, Network: jobs.Network{Mode: jobs.NetworkNone}}}
	at := jobs.OpenPlace{Dir: t.TempDir(), Scratch: t.TempDir(), Guest: "/n", On: run.Local{}, Progress: func(string) {}}
	_, err := (&Backend{}).Open(t.Context(), s, at)
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "eth0") {
		t.Errorf("%v", err)
	}
}

// Where no driver but ext3 works, that one is chosen, and says why.
func TestChooseExt3(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin:/usr/sbin")
	program(t, dir, "apptainer", "echo 'FATAL:   only root may do that' >&2; exit 255", 0o755)
	s := &jobs.EnvSpec{Home: t.TempDir(), Name: "e", Persistent: true, User: "x", Place: jobs.Place{Image: dir}}
	at := jobs.OpenPlace{Dir: t.TempDir(), Scratch: t.TempDir(), Guest: "/bin/false", On: run.Local{}, Progress: func(string) {}}
	op, err := (&Backend{}).Open(t.Context(), s, at)
	if err != nil {
		t.Fatal(err)
	}
	if op.OwnMounts || !slices.ContainsFunc(op.Notes, func(n string) bool { return strings.HasPrefix(n, "overlay driver ext3 (kernel: ") }) {
		t.Errorf("%q", op.Notes)
	}
	s.Name, s.Overlay.Driver = "k", jobs.DriverKernel
	at.Dir = t.TempDir()
	if _, err := (&Backend{}).Open(t.Context(), s, at); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "is not available here") {
		t.Errorf("%v", err)
	}
}

// Only what a dead keeper of a singularity environment has left is found, and
// removed with all that is in it.
func TestLeftovers(t *testing.T) {
	base, home := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", base)
	self := lease.Self()
	if self.BootID == "" {
		t.Skip("this system has no boot id")
	}
	dead := self
	dead.BootID = "another/1"
	spec := jobs.EnvSpec{Version: 1, ID: "id-1", Name: "e", Home: home, Created: time.Now(), Place: jobs.Place{Backend: jobs.BackendSingularity}}
	env := filepath.Join(home, "envs", "e")
	if err := os.MkdirAll(filepath.Dir(env), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.CreateEnv(env, spec); err != nil {
		t.Fatal(err)
	}
	scratch := func(name string, owner lease.Process, of string) string {
		dir := filepath.Join(base, fmt.Sprintf("berth-%d-%s", os.Getuid(), name))
		b, err := json.Marshal(map[string]any{"host": owner.Host, "boot_id": owner.BootID, "pid": owner.PID, "start": owner.Start, "for": of})
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "w", "deep"), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, ".owner.json"), b, 0o600)
		}
		if err == nil {
			err = os.Chmod(filepath.Join(dir, "w"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left := scratch("left", dead, env)
	unknown := scratch("unknown", dead, filepath.Join(home, "envs", "gone"))
	alive := scratch("alive", self, env)
	job := scratch("job", dead, filepath.Join(home, "jobs", "x", "attempts", "0001"))
	b := &Backend{}
	list, err := b.List(t.Context(), run.Local{})
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(f jobs.Found) bool { return filepath.Dir(f.Ref) != base })
	if len(list) != 2 || list[0].Ref != left || list[0].ID != "id-1" || list[0].Home != home || list[0].Running || list[1].Ref != unknown || list[1].ID != "" || list[1].Home != home {
		t.Errorf("%+v", list)
	}
	for _, f := range list {
		if err := b.Reap(t.Context(), run.Local{}, f); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(f.Ref); err == nil {
			t.Error("still there: " + f.Ref)
		}
	}
	for _, dir := range []string{alive, job, home} {
		if err := b.Reap(t.Context(), run.Local{}, jobs.Found{What: whatScratch, Ref: dir}); err == nil {
			t.Error("removed: " + dir)
		}
		if _, err := os.Lstat(dir); err != nil {
			t.Error(err)
		}
		_ = os.Chmod(filepath.Join(dir, "w"), 0o700)
	}
}

// The files of an environment go, with what needs more than a removal; those
// of another one that has its name by now stay.
func TestRemove(t *testing.T) {
	home := t.TempDir()
	spec := jobs.EnvSpec{Version: 1, ID: "id-1", Name: "e", Home: home, Place: jobs.Place{Backend: jobs.BackendSingularity}}
	env := filepath.Join(home, "envs", "e")
	work := filepath.Join(env, dirOverlay, "layer", "work", "work")
	b := &Backend{}
	if err := b.Remove(t.Context(), &spec, run.Local{}); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(env), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.CreateEnv(env, spec); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(work, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{work, filepath.Dir(work)} {
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	other := spec
	other.ID = "id-2"
	if err := b.Remove(t.Context(), &other, run.Local{}); jobs.KindOf(err) != jobs.KindAgain {
		t.Errorf("of another one: %v", err)
	}
	if err := b.Remove(t.Context(), &spec, run.Local{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(env, dirOverlay)); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// A machine without a card of the kind that is asked for is said, of both makers alike.
func TestNoCard(t *testing.T) {
	for _, c := range []struct{ kind, has, want string }{
		{"", "", ""},
		{"amd", "", "no GPU of AMD (there is no /dev/kfd)"},
		{"amd", "nvidia0", "no GPU of AMD (there is no /dev/kfd)"},
		{"amd", "kfd", ""},
		{"amd", "dxg", ""},
		{"nvidia", "", "no GPU of NVIDIA (there is no /dev/nvidia[0-9]*)"},
		{"nvidia", "nvidiactl", "no GPU of NVIDIA"},
		{"nvidia", "nvidia3", ""},
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "dev"), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.has != "" {
			if err := os.WriteFile(filepath.Join(root, "dev", c.has), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := noCard(root, c.kind); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
