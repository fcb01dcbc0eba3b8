//go:build cluster

package apptainer

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	guestmain "berth/internal/node/guest"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/overlay"
)

// These tests run real containers, on a machine with Apptainer and a SIF that
// has a shell: scripts/test builds them into one static program, which stands
// in for berth-node as well, outside and inside.
//
//	BERTH_TEST_IMAGE=/opt/images/base.sif ./apptainer.test -test.v
//
// BERTH_TEST_HOMES is where state directories are made, if not in /tmp: on a
// network file system some tests find another driver than they expect.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "overlay-mount":
			os.Exit(overlay.MountMain(os.Args[2:], os.Stderr))
		case "try":
			if os.Args[2] == wordHang {
				os.Exit(TryMain(os.Args[2:], os.Stdin, io.Discard, hangs{}))
			}
			os.Exit(TryMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "hang": // to be killed with a container that does not end
			o, layer, err := hanging(os.Args[2], os.Args[3])
			if err == nil {
				err = o.try(context.Background(), jobs.Invocation{Guest: o.at.Guest, Place: jobs.Place{Overlay: jobs.OverlaySpec{Driver: jobs.DriverExt3}}}, o.spec.Image, layer, wordHang)
			}
			fmt.Println(err)
			os.Exit(0)
		case "guest":
			os.Exit(guestmain.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case "open": // to be killed in mid-work
			s, at := specIn(os.Args[2], os.Args[3])
			_, err := (&Backend{}).Open(context.Background(), s, at)
			fmt.Println(err)
			os.Exit(0)
		}
	}
	code := m.Run()
	_ = run.RemoveFiles(context.Background(), run.Local{}, pool())
	os.Exit(code)
}

// pool keeps the unpacked image and what was found out from one test to the
// next; only some are about how these are made.
func pool() string {
	base := os.Getenv("BERTH_TEST_HOMES")
	if base == "" {
		base = os.TempDir()
	}
	return filepath.Join(base, fmt.Sprintf("berth-env-pool-%d", os.Getpid()))
}

// warmBench is a bench to which the image is no news.
func warmBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	if err := os.MkdirAll(pool(), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"images", "probes"} {
		from, to := filepath.Join(pool(), dir), filepath.Join(b.home, dir)
		if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Rename(to, from) })
	}
	return b
}

func specIn(home, scratch string) (*jobs.EnvSpec, jobs.OpenPlace) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	s := &jobs.EnvSpec{
		Version: 1, ID: "x", Name: "e", Persistent: true, Home: home, User: os.Getenv("USER"),
		Place: jobs.Place{
			Backend: jobs.BackendSingularity, Image: os.Getenv("BERTH_TEST_IMAGE"),
		},
	}
	return s, jobs.OpenPlace{Dir: filepath.Join(home, "envs", "e"), Guest: self, Scratch: scratch, On: run.Local{}, Progress: func(string) {}}
}

// bench is a state directory and what is opened in it.
type bench struct {
	t       *testing.T
	home    string
	scratch string
	n       int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := func(base string) string {
		d, err := os.MkdirTemp(base, "berth-env-test-") //nolint:usetesting // containers leave what t.TempDir cannot remove
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := run.RemoveFiles(context.Background(), run.Local{}, d); err != nil {
				t.Error(err)
			}
		})
		return d
	}
	return &bench{t: t, home: dir(os.Getenv("BERTH_TEST_HOMES")), scratch: dir("")}
}

// spec describes an environment and makes a place to open it in.
func (b *bench) spec(change func(*jobs.EnvSpec)) (*jobs.EnvSpec, jobs.OpenPlace) {
	b.t.Helper()
	b.n++
	s, at := specIn(b.home, filepath.Join(b.scratch, fmt.Sprint(b.n)))
	if change != nil {
		change(s)
	}
	at.Dir = filepath.Join(b.home, "envs", s.Name)
	if err := os.MkdirAll(at.Scratch, 0o700); err != nil {
		b.t.Fatal(err)
	}
	at.Progress = func(text string) { b.t.Log("progress:", text) }
	return s, at
}

func (b *bench) open(change func(*jobs.EnvSpec)) (*jobs.Opening, error) {
	b.t.Helper()
	s, at := b.spec(change)
	return (&Backend{}).Open(b.t.Context(), s, at)
}

func (b *bench) must(change func(*jobs.EnvSpec)) *jobs.Opening {
	b.t.Helper()
	op, err := b.open(change)
	if err != nil {
		b.t.Fatalf("%v (%s)", err, jobs.HintOf(err))
	}
	return op
}

// sh runs a script in the container of an opening in place of the guest.
func (b *bench) sh(op *jobs.Opening, script string) string {
	b.t.Helper()
	argv := append(slices.Clone(op.Argv[:len(op.Argv)-2]), "sh", "-c", script)
	var errs bytes.Buffer
	out, err := run.Output(b.t.Context(), run.Local{}, jobs.Cmd{Argv: argv, Dir: "/", Env: op.Env, OwnMounts: op.OwnMounts, Stderr: &errs})
	if err != nil {
		b.t.Errorf("%s: %v\n%s%s", script, err, out, errs.String())
	}
	return string(out)
}

func (b *bench) close(op *jobs.Opening) {
	b.t.Helper()
	if err := op.Close(); err != nil {
		b.t.Error(err)
	}
}

const changes = `set -e
rm -r /usr/share/doc/gzip; rm -r /usr/share/doc/bash; mkdir /usr/share/doc/bash; echo new >/usr/share/doc/bash/mine
mv /etc/apt /etc/moved; ln -s x /etc/link; chmod 000 /etc/moved; chmod 755 /etc/moved
chmod 0500 /usr/share/doc/bash; mkdir -p /deep/a/b; chmod 000 /deep/a/b`

const looks = `ls -d /usr/share/doc/gzip /etc/apt 2>/dev/null; ls /usr/share/doc/bash; ls /etc/moved | wc -l; readlink /etc/link; id -u`

func driver(name string) func(*jobs.EnvSpec) {
	return func(s *jobs.EnvSpec) { s.Name, s.Overlay.Driver = name, name }
}

// What an image has can be removed, made again and moved with every driver, and
// is so when the layer is opened again.
func TestDrivers(t *testing.T) {
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		t.Run(d, func(t *testing.T) {
			b := warmBench(t)
			op := b.must(driver(d))
			moved := strings.TrimSpace(b.sh(op, "ls /etc/apt | wc -l"))
			b.sh(op, changes)
			want := "mine\n" + moved + "\nx\n" + fmt.Sprint(os.Getuid()) + "\n"
			if got := b.sh(op, looks); got != want {
				t.Errorf("at once: %q, want %q", got, want)
			}
			b.close(op)
			op = b.must(driver(d))
			if got := b.sh(op, looks); got != want {
				t.Errorf("opened again: %q, want %q", got, want)
			}
			if op.Rebuilt != "" || !op.OwnPIDNamespace {
				t.Errorf("%+v", op)
			}
			b.close(op)
			for _, other := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
				_, err := b.open(func(s *jobs.EnvSpec) { s.Name, s.Overlay.Driver = d, other })
				if (err == nil) != (other == d) || err != nil && jobs.KindOf(err) != jobs.KindConfig {
					t.Errorf("%s opened as %s: %v", d, other, err)
				}
			}
			// The mark decides when no one says otherwise.
			op = b.must(func(s *jobs.EnvSpec) { s.Name = d })
			if got := b.sh(op, looks); got != want {
				t.Errorf("opened by its mark: %q", got)
			}
			for i := range 3 {
				began := time.Now()
				op = b.must(func(s *jobs.EnvSpec) { s.Name = d })
				opened := time.Since(began)
				b.sh(op, "true")
				t.Logf("cold %d: open %v, with true %v", i, opened.Round(100*time.Microsecond), time.Since(began).Round(100*time.Microsecond))
			}
		})
	}
}

// counter counts what is started.
type counter struct {
	run.Local
	n atomic.Int32
}

func (c *counter) Start(ctx context.Context, cmd jobs.Cmd) (jobs.Process, error) {
	c.n.Add(1)
	return c.Local.Start(ctx, cmd)
}

// Without a word about the driver it is the kernel's here; and once that is
// known and the image unpacked, nothing is started to open an environment.
func TestAuto(t *testing.T) {
	b := warmBench(t)
	op := b.must(func(s *jobs.EnvSpec) { s.Persistent = false })
	if !op.OwnMounts || !slices.Contains(op.Notes, "overlay driver kernel") {
		t.Errorf("%v %v", op.Notes, op.Argv)
	}
	if got := b.sh(op, "touch /x; ls /x; grep -c '^Cap[A-Z][a-z]*:.0*$' /proc/self/status; grep NoNewPrivs /proc/self/status; df -P /tmp | tail -1 | cut -d' ' -f1"); !strings.HasPrefix(got, "/x\n5\nNoNewPrivs:\t1\n") {
		t.Errorf("%q", got)
	}
	b.close(op)
	for _, persistent := range []bool{false, true} {
		s, at := b.spec(func(s *jobs.EnvSpec) { s.Persistent = persistent })
		on := &counter{}
		at.On = on
		op, err := (&Backend{}).Open(t.Context(), s, at)
		if err != nil {
			t.Fatal(err)
		}
		if n := on.n.Load(); n != 0 {
			t.Errorf("persistent %v: %d programs were started", persistent, n)
		}
		b.close(op)
	}
	op = b.must(func(s *jobs.EnvSpec) { s.Name, s.Overlay.Size = "sized", jobs.GiB })
	if !slices.Contains(op.Notes, "overlay driver ext3 (a size is asked for)") {
		t.Errorf("%v", op.Notes)
	}
	if _, err := b.open(func(s *jobs.EnvSpec) { s.Overlay.Size, s.Overlay.Driver = jobs.GiB, jobs.DriverKernel }); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("a sized kernel layer: %v", err)
	}
}

// A parent that is not asked to make the namespaces leaves that to the program.
func TestMountByItself(t *testing.T) {
	b := warmBench(t)
	op := b.must(driver(jobs.DriverKernel))
	op.OwnMounts = false
	if got := b.sh(op, "echo $((6*7))"); got != "42\n" {
		t.Errorf("%q", got)
	}
}

// An unpacked image may be given too; fuse is not right over it.
func TestSandbox(t *testing.T) {
	b := newBench(t)
	dir := filepath.Join(b.home, "a,b:c image")
	if out, err := exec.Command("apptainer", "build", "--sandbox", filepath.Join(b.home, "sb"), os.Getenv("BERTH_TEST_IMAGE")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Rename(filepath.Join(b.home, "sb"), dir); err != nil {
		t.Fatal(err)
	}
	op := b.must(func(s *jobs.EnvSpec) { s.Image = dir })
	if !op.OwnMounts || len(op.Notes) < 2 {
		t.Errorf("%v", op.Notes)
	}
	b.sh(op, changes)
	b.close(op)
	if _, err := os.Stat(filepath.Join(dir, "usr/share/doc/gzip")); err != nil {
		t.Errorf("the image was changed: %v", err)
	}
	if _, err := b.open(func(s *jobs.EnvSpec) { s.Image, s.Name, s.Overlay.Driver = dir, "f", jobs.DriverFuse }); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("fuse over a directory: %v", err)
	}
	// That is so because of what a probe of the container program's own overlay
	// over a directory finds here: it is one that sees wrong layers.
	s, at := b.spec(func(s *jobs.EnvSpec) { s.Image = dir })
	for _, d := range []string{dirWorkdir, dirConf, dirEmpty} {
		if err := os.Mkdir(filepath.Join(at.Scratch, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o := &opener{b: &Backend{}, spec: s, at: at, program: "/usr/bin/apptainer"}
	if f := o.layerWorks(t.Context(), jobs.DriverFuse, b.home, dir, false); f.OK || !strings.Contains(f.Why, "directory of the image") {
		t.Errorf("its own overlay: %+v", f)
	} else {
		t.Log("its own overlay: " + f.Why)
	}
	op = b.must(func(s *jobs.EnvSpec) { s.Image, s.Name, s.Overlay.Driver = dir, "x", jobs.DriverExt3 })
	b.sh(op, changes)
	// Another image below the same files is refused.
	if _, err := b.open(nil); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "another image") {
		t.Errorf("another image: %v", err)
	}
}

// Whoever opens first unpacks, and everybody else waits and has the same.
func TestUnpackTogether(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		s, at := b.spec(func(s *jobs.EnvSpec) { s.Name = fmt.Sprintf("e%d", i) })
		wg.Go(func() { _, errs[i] = (&Backend{}).Open(t.Context(), s, at) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	b.onlyStaged()
}

// staged are the copies in the state directory, and onlyStaged the one that is
// there alone.
func (b *bench) staged() []string {
	b.t.Helper()
	list, err := filepath.Glob(filepath.Join(b.home, "images", "staged", "*", "copy-*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

func (b *bench) onlyStaged() string {
	b.t.Helper()
	list, err := filepath.Glob(filepath.Join(b.home, "images", "staged", "*"))
	if copies := b.staged(); err == nil && len(list) == 1 && len(copies) == 1 {
		return copies[0]
	}
	b.t.Fatalf("%q, %q, %v", list, b.staged(), err)
	return ""
}

// A process that is killed while it unpacks leaves nothing that is used.
func TestUnpackKilled(t *testing.T) {
	b := newBench(t)
	_, at := b.spec(nil)
	var said bytes.Buffer
	cmd := exec.Command(at.Guest, "open", b.home, at.Scratch)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	half := ""
	for deadline := time.Now().Add(5 * time.Minute); half == "" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		// Apptainer unpacks beside it, and renames that at its end.
		for _, at := range []string{"build-temp-*/*", "root"} {
			if m, _ := filepath.Glob(filepath.Join(b.home, "images", "staged", "berth-*", "w", "copy", at)); len(m) > 0 {
				half = m[0]
			}
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	if half == "" {
		t.Fatalf("it was not seen to unpack: %s", &said)
	}
	op := b.must(nil)
	b.sh(op, changes)
	b.close(op)
	// The build program of the killed one may have gone on a little.
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if b, _ := exec.Command("pgrep", "-f", b.home).Output(); len(b) == 0 {
			break
		}
	}
	copies := b.staged()
	if len(copies) != 1 {
		t.Fatalf("%q", copies)
	}
	dir := copies[0]
	// What a site has half removed is made again.
	if err := os.Remove(filepath.Join(dir, "canary")); err != nil {
		t.Fatal(err)
	}
	if err := run.RemoveFiles(t.Context(), run.Local{}, filepath.Join(dir, "root", "bin")); err != nil {
		t.Fatal(err)
	}
	op = b.must(nil)
	if got := b.sh(op, looks); !strings.HasPrefix(got, "mine\n") {
		t.Errorf("%q", got)
	}
	b.close(op)
	b.must(func(s *jobs.EnvSpec) { s.Name = "again" })
	b.onlyStaged() // what the killed one had left is gone
}

// Files that were removed behind berth's back are told.
func TestLost(t *testing.T) {
	b := warmBench(t)
	op := b.must(nil)
	b.sh(op, "touch /mine")
	b.close(op)
	if err := run.RemoveFiles(t.Context(), run.Local{}, filepath.Join(b.home, "envs/e/overlay/layer/upper")); err != nil {
		t.Fatal(err)
	}
	op = b.must(nil)
	if op.Rebuilt == "" || b.sh(op, "ls /mine 2>/dev/null || echo gone") != "gone\n" {
		t.Errorf("%q", op.Rebuilt)
	}
	b.close(op)
	if op = b.must(nil); op.Rebuilt != "" {
		t.Errorf("twice: %q", op.Rebuilt)
	}
}

func TestMounts(t *testing.T) {
	b := warmBench(t)
	dir := filepath.Join(t.TempDir(), `o'd, d:r`)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		op := b.must(func(s *jobs.EnvSpec) {
			driver(d)(s)
			s.Mounts = []jobs.Mount{{Source: dir, Destination: "/new/place", Writable: true}, {Source: filepath.Join(dir, "f"), Destination: "/etc/one file"}, {Source: "/tmp", Destination: "/lib/x"}}
		})
		got := b.sh(op, "cat /new/place/f '/etc/one file'; touch /new/place/"+d+"; touch '/etc/one file' 2>/dev/null || echo read-only")
		if got != "text\ntext\nread-only\n" {
			t.Errorf("%s: %q", d, got)
		}
		if _, err := os.Stat(filepath.Join(dir, d)); err != nil {
			t.Error(err)
		}
		b.close(op)
	}
	_, err := b.open(func(s *jobs.EnvSpec) { s.Mounts = []jobs.Mount{{Source: "/does/not/exist", Destination: "/x"}} })
	if jobs.KindOf(err) != jobs.KindNotFound || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("%v", err)
	}
}

func TestNoNetwork(t *testing.T) {
	b := warmBench(t)
	for _, d := range []string{jobs.DriverKernel, jobs.DriverFuse, jobs.DriverExt3} {
		op := b.must(func(s *jobs.EnvSpec) { driver(d)(s); s.Network.Mode = jobs.NetworkNone })
		if got := b.sh(op, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"); got != "lo\n" {
			t.Errorf("%s: %q", d, got)
		}
	}
	op := b.must(nil)
	if got := b.sh(op, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"); got == "lo\n" {
		t.Error("the host's network is not there either: the test proves nothing")
	}
	if _, err := b.open(func(s *jobs.EnvSpec) { s.Network.Mode = "bridge" }); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
}

// With ids of the user's own, root inside can make files of others, which only
// a namespace with these ids can remove.
func TestFakeroot(t *testing.T) {
	b := warmBench(t)
	op := b.must(func(s *jobs.EnvSpec) { s.Fakeroot = true })
	if !slices.ContainsFunc(op.Notes, func(n string) bool { return strings.HasPrefix(n, "fakeroot: root and all other users inside") }) {
		t.Errorf("%v", op.Notes)
	}
	t.Log(op.Notes)
	got := b.sh(op, `set -e; id -u; mkdir -p /other/inner; touch /other/inner/f; chmod 700 /other; chown -R 5:6 /other; stat -c '%u %g' /other; `+
		`rm -r /usr/share/doc/gzip; mkdir /usr/share/doc/gzip; ls /usr/share/doc/gzip`)
	if got != "0\n5 6\n" {
		t.Errorf("%q", got)
	}
	b.close(op)
	if _, err := b.open(func(s *jobs.EnvSpec) { s.Name, s.Fakeroot, s.Overlay.Driver = "k", true, jobs.DriverKernel }); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
	op = b.must(func(s *jobs.EnvSpec) { s.Name, s.Fakeroot, s.Overlay.Driver = "x", true, jobs.DriverExt3 })
	if got := b.sh(op, `id -u; touch /f; chown 5:6 /f; stat -c '%u %g' /f`); got != "0\n5 6\n" {
		t.Errorf("ext3: %q", got)
	}
}

func TestImageErrors(t *testing.T) {
	b := newBench(t)
	text := filepath.Join(b.home, "text.sif")
	if err := os.WriteFile(text, []byte("no image"), 0o600); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]jobs.Kind{
		"/nowhere.sif":                  jobs.KindNotFound,
		text:                            jobs.KindConfig,
		"":                              jobs.KindUsage,
		"relative.sif":                  jobs.KindUsage,
		"docker-archive:/nowhere.tar":   jobs.KindNotFound,
		"docker-archive:" + text:        jobs.KindUsage,
		"docker://127.0.0.1:9/no/one:1": jobs.KindInfra,
		"no.such.host.invalid/one:1":    jobs.KindInfra,
		"oras://127.0.0.1:9/no/one:1":   jobs.KindInfra,
		"library://one/two/three:1":     jobs.KindConfig,
	} {
		_, err := b.open(func(s *jobs.EnvSpec) { s.Image = image })
		if err == nil || jobs.KindOf(err) != want || jobs.HintOf(err) == "" {
			t.Errorf("%s: kind %v, want %v: %v (%s)", image, jobs.KindOf(err), want, err, jobs.HintOf(err))
		}
	}
	entries, _ := os.ReadDir(filepath.Join(b.home, "images"))
	for _, e := range entries {
		if e.Name() != "pulls" {
			t.Errorf("left: %s", e.Name())
		}
	}
}

// archive makes an image as docker saves it, with this program as its shell
// would be.
func archive(t *testing.T, path string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, d := range []string{"bin/", "etc/", "etc/one/", "etc/two/", "tmp/", "usr/"} {
		_ = w.WriteHeader(&tar.Header{Name: d, Mode: 0o755, Typeflag: tar.TypeDir})
	}
	for _, f := range []string{"etc/one/a", "etc/two/b"} {
		_ = w.WriteHeader(&tar.Header{Name: f, Mode: 0o644, Size: 1})
		_, _ = w.Write([]byte("x"))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := digestOf(layer.Bytes())
	config, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum}}})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{"one:1"}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w = tar.NewWriter(f)
	for name, b := range map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer.Bytes()} {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b))})
		_, _ = w.Write(b)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A reference is converted once, by whoever comes first, also when several come
// at the same time.
func TestConvert(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.home, "one.tar")
	archive(t, path)
	ref := "docker-archive:" + path
	var wg sync.WaitGroup
	ops, errs := make([]*jobs.Opening, 3), make([]error, 3)
	for i := range ops {
		s, at := b.spec(func(s *jobs.EnvSpec) { s.Name, s.Image = fmt.Sprintf("e%d", i), ref })
		wg.Go(func() { ops[i], errs[i] = (&Backend{}).Open(t.Context(), s, at) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if made, err := filepath.Glob(filepath.Join(b.home, "images", "sha256", "*.sif")); len(made) != 1 || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	b.onlyStaged()
	// The image has no shell, and needs none.
	argv := append(slices.Clone(ops[0].Argv[:len(ops[0].Argv)-1]), "try", tryChange)
	in, owner, err := os.Pipe() // it leaves at the end of its input
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), owner.Close() }()
	out, err := run.Output(t.Context(), run.Local{}, jobs.Cmd{Argv: argv, Dir: "/", Env: ops[0].Env, Stdin: in, OwnMounts: ops[0].OwnMounts})
	if err != nil {
		t.Errorf("%v %s", err, out)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	b.must(func(s *jobs.EnvSpec) { s.Name, s.Image = "e0", ref })
}

func TestLimits(t *testing.T) {
	b := warmBench(t)
	res := jobs.Resources{Memory: jobs.GiB, CPUs: 1}
	op := b.must(func(s *jobs.EnvSpec) { s.Resources, s.Defaulted = res, []string{"cpus"} })
	if op.Memory != jobs.GiB || len(op.Notes) != 3 {
		t.Errorf("%v %v", op.Memory, op.Notes)
	}
	_, err := b.open(func(s *jobs.EnvSpec) { s.Resources = res })
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "cpus") {
		t.Errorf("%v", err)
	}
	_, err = b.open(func(s *jobs.EnvSpec) { s.Resources, s.Strict, s.Defaulted = res, true, []string{"cpus", "memory"} })
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "memory") {
		t.Errorf("%v", err)
	}
	_, err = b.open(func(s *jobs.EnvSpec) {
		s.Resources, s.Strict, s.Defaulted = jobs.Resources{CPUs: 1}, true, []string{"cpus"}
	})
	if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "cpus") {
		t.Errorf("%v", err)
	}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// In a Slurm job the job's cgroup holds the limit, unless it is wider.
func TestLimitsInJob(t *testing.T) {
	if os.Getenv("SLURM_JOB_ID") == "" {
		t.Skip("not in a Slurm job")
	}
	b := warmBench(t)
	op := b.must(func(s *jobs.EnvSpec) { s.Resources, s.Strict = jobs.Resources{Memory: jobs.GiB, CPUs: 1}, true })
	if op.Memory != 0 || len(op.Notes) != 1 {
		t.Errorf("%v %v", op.Memory, op.Notes)
	}
	less := jobs.Resources{Memory: 100 * jobs.MiB}
	if op = b.must(func(s *jobs.EnvSpec) { s.Resources = less }); op.Memory != 100*jobs.MiB {
		t.Errorf("%v %v", op.Memory, op.Notes)
	}
	if _, err := b.open(func(s *jobs.EnvSpec) { s.Resources, s.Strict = less, true }); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
}

// In a job with little memory nothing is unpacked: that would end the job.
func TestSmallJob(t *testing.T) {
	if os.Getenv("SLURM_JOB_ID") == "" {
		t.Skip("not in a Slurm job")
	}
	b := newBench(t)
	op := b.must(nil) // whether other tests have had the image unpacked here or not
	if op.OwnMounts || !slices.ContainsFunc(op.Notes, func(n string) bool { return strings.Contains(n, "unpacking an image takes") }) {
		t.Errorf("%q", op.Notes)
	}
	b.sh(op, "true")
}
