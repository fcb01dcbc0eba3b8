package overlay

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"berth/internal/sys/run"
	"berth/jobs"
)

// conversion is one of a test: an image is small.
func conversion(driver string) Conversion {
	return Conversion{Driver: driver, Size: map[string]jobs.Bytes{jobs.DriverExt3: 128 * jobs.MiB}[driver]}
}

// sample gives an overlay of the driver fuse what tasks and fuse-overlayfs leave.
func (s testSet) sample(t *testing.T, name string) *Info {
	t.Helper()
	i := s.create(t, name, jobs.DriverFuse)
	must(t, os.RemoveAll(i.Layer()))
	must(t, os.Rename(hard(t), i.Layer()))
	must(t, os.Mkdir(filepath.Join(i.Layer(), "work"), 0o700))
	must(t, os.Truncate(filepath.Join(i.Layer(), "upper/big"), 4<<20)) // less to look at
	// As fuse-overlayfs does where it cannot make devices or set attributes.
	layerOf(t, filepath.Join(i.Layer(), "upper"), "var/.wh.cache", "srv/.wh..wh..opq", "srv/new")
	return i
}

func (s testSet) described(t *testing.T, i *Info) string {
	t.Helper()
	l, err := openLayer(i.Mark.Driver, i.Layer())
	must(t, err)
	defer l.close()
	text := describe(t, l)
	for _, x := range []string{"user.overlay.opaque", "user.fuseoverlayfs.opaque"} {
		text = strings.ReplaceAll(text, x, "OPAQUE")
	}
	return text
}

// marksOf are the names of marks in a directory layer, as they stand there.
func marksOf(t *testing.T, i *Info) string {
	t.Helper()
	upper := filepath.Join(i.Layer(), "upper")
	var out []string
	must(t, filepath.WalkDir(upper, func(p string, d os.DirEntry, err error) error {
		must(t, err)
		rel, _ := filepath.Rel(upper, p)
		if d.Type()&os.ModeCharDevice != 0 || strings.HasPrefix(d.Name(), ".wh.") {
			out = append(out, rel)
		}
		buf := make([]byte, 4096)
		if n, err := unix.Llistxattr(p, buf); err == nil {
			for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
				if strings.Contains(name, "overlay") {
					out = append(out, rel+" "+name)
				}
			}
		}
		return nil
	}))
	return strings.Join(out, "\n")
}

// TestConvert: from each driver to each, what is there, what is deleted and what
// is replaced stay the same, marked as the driver does it.
func TestConvert(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	s := newSet(t)
	i := s.sample(t, "deps")
	if os.Geteuid() == 0 {
		must(t, os.Chown(filepath.Join(i.Layer(), "upper/usr"), 5, 7))
	}
	want := ""
	for n, to := range []string{jobs.DriverKernel, jobs.DriverExt3, jobs.DriverFuse, jobs.DriverExt3, jobs.DriverKernel, jobs.DriverFuse} {
		if n > 0 && to == jobs.DriverExt3 {
			want = strings.ReplaceAll(want, " 5:7 ", " 0:0 ") // in an image all is this user's
		}
		all := int64(0)
		got, err := s.Convert(t.Context(), "deps", conversion(to), func(_, a int64) { all = a })
		if err != nil {
			t.Fatalf("%d to %s: %v", n, to, err)
		}
		if got.Mark.Driver != to || got.Mark.Moving || got.Holder != nil || got.Mark.Size != conversion(to).Size || all == 0 {
			t.Errorf("%d: %+v, %d bytes", n, got.Mark, all)
		}
		text := s.described(t, got)
		if n == 0 {
			want = text
			for _, line := range []string{"var/cache 20000 0:0 opaque false whiteout", "etc/hosts 20000 0:0 opaque false whiteout"} {
				if !strings.Contains(text, line) {
					t.Errorf("no %q in\n%.2000s", line, text)
				}
			}
			if strings.Count(text, "opaque true") != 2 {
				t.Errorf("%.2000s", text)
			}
		}
		if text != want {
			t.Errorf("%d: to %s\n%.3000s\nwant\n%.3000s", n, to, text, want)
		}
		if to != jobs.DriverExt3 {
			mark := map[string]string{jobs.DriverKernel: "user.overlay.opaque", jobs.DriverFuse: "user.fuseoverlayfs.opaque"}[to]
			if got, want := marksOf(t, got), "etc/hosts\nopt "+mark+"\nsrv "+mark+"\nvar/cache"; got != want {
				t.Errorf("%d: %s\nwant %s", n, got, want)
			}
		}
		if left := names(t, got.Dir); strings.Contains(left, ".making") || strings.Contains(left, dirRestored) || strings.Contains(left, dirLayer+" ") && strings.Contains(left, fileImage) {
			t.Errorf("%d: left %s", n, left)
		}
		if repaired, err := s.Check(t.Context(), "deps", false); err != nil || len(repaired) > 0 {
			t.Errorf("%d: %q, %v", n, repaired, err)
		}
	}
	// A snapshot is of the driver that it was made with.
	_, err := s.Snapshot(t.Context(), "deps", "one", false)
	must(t, err)
	_, err = s.Convert(t.Context(), "deps", conversion(jobs.DriverExt3), nil)
	must(t, err)
	must(t, s.Restore(t.Context(), "deps", "one", false))
	i, err = s.Get("deps")
	must(t, err)
	if got := s.described(t, i); i.Mark.Driver != jobs.DriverFuse || i.Mark.Moving || got != want {
		t.Errorf("%+v\n%.2000s", i.Mark, got)
	}
}

// TestConvertMounted looks at a converted layer with the kernel's own eyes.
func TestConvertMounted(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	if !asNobody(t) {
		return
	}
	if _, err := run.Output(t.Context(), here, jobs.Cmd{Argv: []string{"true"}, OwnMounts: true}); err != nil {
		t.Skip("no user namespaces: ", err)
	}
	lower := t.TempDir()
	layerOf(t, lower, "etc/hosts", "etc/passwd", "opt/old", "srv/old", "usr/bin", "var/cache", "var/lib", "proc/", "sys/", "dev/", "tmp/", "var/tmp/")
	for _, by := range []string{"", jobs.DriverExt3} {
		s := newSet(t)
		i := s.sample(t, "deps")
		must(t, os.Chmod(filepath.Join(i.Layer(), "upper/many"), 0o500))
		must(t, os.Chmod(filepath.Join(i.Layer(), "upper/opt/hard"), 0))
		if by != "" {
			_, err := s.Convert(t.Context(), "deps", conversion(by), nil)
			must(t, err)
		}
		i, err := s.Convert(t.Context(), "deps", conversion(jobs.DriverKernel), nil)
		must(t, err)
		merged := t.TempDir()
		m := Mount{Lower: lower, Upper: filepath.Join(i.Layer(), "upper"), Work: filepath.Join(i.Layer(), "work"), Merged: merged}
		find, err := exec.LookPath("find")
		must(t, err)
		out, err := run.Output(t.Context(), here, jobs.Cmd{Argv: m.Argv("/proc/self/exe", []string{find, merged, "-mindepth", "2", "-not", "-path", "*/many/*", "-not", "-path", "*long*", "-printf", "%P %y %m\n"}), OwnMounts: true})
		must(t, err)
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		slices.Sort(got)
		want := "etc/group f 644\netc/passwd f 644\nopt/hard f 0\nopt/x f 0\nsrv/new f 644\nusr/bin f 644\nvar/lib f 644\nvar/tmp d 755"
		if strings.Join(got, "\n") != want {
			t.Errorf("by way of %q:\n%s\nwant\n%s", by, strings.Join(got, "\n"), want)
		}
		must(t, s.Remove(t.Context(), "deps", false))
	}
}

// TestConvertKilled kills a conversion before each of its steps: the overlay is
// what it was, or what it was to be, and nothing is left.
func TestConvertKilled(t *testing.T) {
	need(t, "mke2fs", "e2fsck")
	for _, how := range []string{"fuse kernel", "kernel ext3", "ext3 fuse"} {
		from, to, _ := strings.Cut(how, " ")
		for n, step := range []string{"copy", "sync", "name", "mark", "marked", "aside", "placed", "done"} {
			t.Run(how+"/"+step, func(t *testing.T) {
				t.Parallel()
				dir, image := stampedOverlay(t, from)
				s := &Set{Dir: filepath.Dir(dir), On: here}
				if from != jobs.DriverExt3 {
					must(t, os.MkdirAll(filepath.Join(dir, dirLayer, "upper", "old"), 0o700))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestConvertToBeKilled$")
				cmd.Env = append(os.Environ(), "TEST_KILL="+step, "TEST_DIR="+dir, "TEST_DRIVER="+to, "TMPDIR="+t.TempDir())
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
					t.Fatalf("%v: %s", err, out)
				}
				want := from
				if n > 3 {
					want = to
				}
				l, err := Persistent(t.Context(), here, dir, named(want), Image{Path: image}, me("cccccccc"), always)
				must(t, err)
				must(t, l.Close())
				m, err := ReadMark(dir)
				must(t, err)
				if m.Driver != want || m.Moving {
					t.Errorf("%+v", m)
				}
				if from != jobs.DriverExt3 {
					tr, err := readTree(t.Context(), want, l.Path)
					if err != nil || tr.at["old"] == nil || tr.at["stamp"] == nil {
						t.Errorf("%v, %v", tr.list, err)
					}
				}
				_, err = s.Collect(t.Context(), false)
				must(t, err)
				left := slices.DeleteFunc(strings.Fields(names(t, dir)), func(n string) bool { return strings.HasPrefix(n, "lease.") || n == "beat" })
				if got := strings.Join(left, " "); got != filepath.Base(layerPath(dir, want))+" "+fileMark {
					t.Errorf("there is %s", got)
				}
			})
		}
	}
}

// TestConvertToBeKilled is the other process of TestConvertKilled.
func TestConvertToBeKilled(t *testing.T) {
	at := os.Getenv("TEST_KILL")
	if at == "" {
		t.Skip("TestConvertKilled starts it")
	}
	testStep = func(step string) {
		if _, name, _ := strings.Cut(step, ": "); name == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	dir := os.Getenv("TEST_DIR")
	s := &Set{Dir: filepath.Dir(dir), On: here}
	_, err := s.Convert(t.Context(), filepath.Base(dir), conversion(os.Getenv("TEST_DRIVER")), nil)
	must(t, err)
}

// What cannot be converted is told, and the overlay stays as it was.
func TestConvertRefused(t *testing.T) {
	need(t, "mke2fs")
	s := newSet(t)
	old, other := sif(t, uuid.New(), "x"), sif(t, uuid.New(), "y")
	_, err := s.Create(t.Context(), jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverKernel}, old)
	must(t, err)
	i, err := s.Get("deps")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(i.Layer(), "upper", "big"), bytes.Repeat([]byte("x"), 6<<20), 0o600))
	for name, c := range map[string]struct {
		do   Conversion
		code int
		text string
	}{
		"another image":       {Conversion{Image: other}, 78, "what it has deleted stays deleted"},
		"no image":            {Conversion{Image: "/none.sif"}, 3, "there is no image /none.sif"},
		"not a SIF":           {Conversion{Image: "/proc/self/status"}, 78, "is not a SIF"},
		"a size alone":        {Conversion{Size: jobs.GiB}, 2, "without a driver"},
		"too small":           {Conversion{Driver: jobs.DriverExt3, Size: 2 * jobs.MiB}, 2, "is too small"},
		"less than it has":    {Conversion{Driver: jobs.DriverExt3, Size: 5 * jobs.MiB}, 2, "is less"},
		"no driver of berth":  {Conversion{Driver: "magic"}, 2, "there is no overlay driver"},
		"a size where it was": {Conversion{Driver: jobs.DriverKernel, Inodes: 5}, 2, "overlay deps is kernel already"},
	} {
		_, err := s.Convert(t.Context(), "deps", c.do, nil)
		if jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, jobs.HintOf(err))
		}
	}
	layerOf(t, filepath.Join(i.Layer(), "upper"), "etc/.wh.not-a-mark")
	if _, err := s.Convert(t.Context(), "deps", Conversion{Driver: jobs.DriverFuse}, nil); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "/etc/.wh.not-a-mark") {
		t.Errorf("%v", err)
	}
	if got := strings.Fields(names(t, i.Dir)); !slices.Contains(got, dirLayer) || slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, prefixTemp) || n == dirRestored || n == fileImage }) {
		t.Errorf("there is %s", got)
	}
	must(t, os.RemoveAll(filepath.Join(i.Layer(), "upper", "etc")))
	got, err := s.Convert(t.Context(), "deps", Conversion{Image: other, Force: true}, nil)
	if err != nil || got.Mark.Image != other || got.Mark.ImageID == i.Mark.ImageID || got.Mark.Driver != jobs.DriverKernel || len(*s.said) == 0 {
		t.Errorf("%+v, %v, %q", got, err, *s.said)
	}
	// The same driver is no news, and in an image there is room for all files.
	_, err = s.Convert(t.Context(), "deps", Conversion{Driver: jobs.DriverKernel}, nil)
	must(t, err)
	for n := range 40 {
		must(t, os.WriteFile(filepath.Join(i.Layer(), "upper", "f"+string(rune('a'+n))), nil, 0o600))
	}
	got, err = s.Convert(t.Context(), "deps", Conversion{Driver: jobs.DriverExt3, Size: 16 * jobs.MiB, Image: other}, nil)
	if err != nil || got.Mark.Driver != jobs.DriverExt3 {
		t.Errorf("%+v, %v", got, err)
	}
	// While someone has it, nothing is touched.
	o := me("aaaaaaaa")
	l, err := Acquire(i.Dir, o, nil)
	must(t, err)
	if _, err := s.Convert(t.Context(), "deps", Conversion{Driver: jobs.DriverFuse}, nil); jobs.CodeOf(err) != jobs.CodeAgain {
		t.Errorf("%v", err)
	}
	must(t, l.Release())
}

// TestFit: an image is made as large as its files need.
func TestFit(t *testing.T) {
	files := func(n int, size int64) *tree {
		tr := &tree{}
		for range n {
			tr.list = append(tr.list, &entry{mode: unix.S_IFREG, size: size})
		}
		return tr
	}
	for name, c := range map[string]struct {
		t            *tree
		size         jobs.Bytes
		want         jobs.Bytes
		inodes, code int64
	}{
		"few":            {files(3, 1<<20), 0, 0, 0, 0},
		"large":          {files(20, 1<<30), 0, 31 * jobs.GiB, 0, 0},
		"a size":         {files(20, 1<<30), 50 * jobs.GiB, 50 * jobs.GiB, 0, 0},
		"too small":      {files(20, 1<<30), 10 * jobs.GiB, 10 * jobs.GiB, 0, 2},
		"many and small": {files(200_000, 10), 2 * jobs.GiB, 2 * jobs.GiB, 400_000, 0},
	} {
		spec := jobs.OverlaySpec{Size: c.size}
		err := c.t.fit(&spec)
		if int64(jobs.CodeOf(err)) != c.code || spec.Size != c.want || spec.Inodes != c.inodes {
			t.Errorf("%s: %+v, %v", name, spec, err)
		}
	}
}

// TestMoveWithoutLayer: when the layer that was to take its place is gone, the
// one that is there is not thrown away for it.
func TestMoveWithoutLayer(t *testing.T) {
	need(t, "mke2fs")
	for _, to := range []string{jobs.DriverExt3, jobs.DriverKernel} {
		t.Run(to, func(t *testing.T) {
			s := newSet(t)
			i := s.create(t, "deps", jobs.DriverFuse)
			stamp(t, jobs.DriverFuse, i.Layer(), "old")
			m := *i.Mark
			m.Driver, m.Moving = to, true
			must(t, writeMark(i.Dir, &m))
			if to == jobs.DriverKernel { // which has the same name
				must(t, os.Rename(i.Layer(), filepath.Join(i.Dir, ".restored")))
			}
			_, err := s.Check(t.Context(), "deps", false)
			if !errors.Is(err, ErrLost) || jobs.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
			at := i.Layer()
			if to == jobs.DriverKernel {
				at = filepath.Join(i.Dir, ".restored")
			}
			if got := stamped(t, jobs.DriverFuse, at); got != "old" {
				t.Errorf("%q", got)
			}
		})
	}
}
