package apptainer

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"

	"berth/internal/sys/run"
	"berth/jobs"
)

// tinySquashfs is an image that [overlay.TryChange] is content with, for what
// stands over an image file. It was made of what [overlay.MakeTiny] makes, and
// of empty files .berth/node, etc/hosts and etc/resolv.conf, by
//
//	mksquashfs DIR tiny.squashfs -nopad -all-root -all-time 0 -mkfs-time 0 -no-xattrs -comp gzip
//
//go:embed tiny.squashfs
var tinySquashfs []byte

// squashfsBlock is what an image file is padded to; a shorter one the container
// program does not recognise.
const squashfsBlock = 4096

// A Trial tries ways of having containers on this machine, in layers and over
// images that are thrown away. It remembers nothing and leaves nothing.
type Trial struct {
	On      jobs.Starter
	Program string // of the container
	Guest   string // path of berth-node
	Scratch string // a fresh directory of this trial's own, on the disk that layers are to stand on; removed by its maker
	User    string
}

func (t Trial) opener(fakeroot bool) (*opener, error) {
	for _, d := range []string{dirWorkdir, dirConf, dirEmpty} {
		if err := os.MkdirAll(filepath.Join(t.Scratch, d), 0o700); err != nil {
			return nil, err
		}
	}
	return &opener{b: &Backend{On: t.On}, program: t.Program, spec: &jobs.EnvSpec{User: t.User, Place: jobs.Place{Fakeroot: fakeroot}},
		at: jobs.OpenPlace{Dir: t.Scratch, Guest: t.Guest, Scratch: t.Scratch, On: t.On, Progress: func(string) {}}}, nil
}

// Layer tells what is wrong with an overlay driver's layers here, or nil: a
// container changes what an image has, and a second one looks at that.
// "kernel" stands over an unpacked image, the others over an image file.
func (t Trial) Layer(ctx context.Context, driver string, fakeroot bool) error {
	o, err := t.opener(fakeroot)
	if err != nil {
		return err
	}
	if driver == jobs.DriverKernel {
		return o.tryLayer(ctx, driver, t.Scratch, t.Scratch, true)
	}
	img, err := tinyImage(t.Scratch)
	if err != nil {
		return err
	}
	return o.tryLayer(ctx, driver, t.Scratch, img, false)
}

// tinySize is the size of an ext3 layer that is only tried.
const tinySize = 64 * jobs.MiB

// tinyImage makes an image file in dir.
func tinyImage(dir string) (string, error) {
	img := filepath.Join(dir, "tiny.squashfs")
	return img, os.WriteFile(img, append(append([]byte{}, tinySquashfs...), make([]byte, squashfsBlock-len(tinySquashfs))...), 0o600)
}

// NoNetwork tells why network isolation is not available, or nil.
func (t Trial) NoNetwork(ctx context.Context) error {
	o, err := t.opener(false)
	if err != nil {
		return err
	}
	return o.tryNetworkNone(ctx)
}

// Remove removes the scratch directory of a trial, whatever it has left there.
func (t Trial) Remove(ctx context.Context) error { return run.RemoveFiles(ctx, t.On, t.Scratch) }
