package overlay

import (
	"path/filepath"

	"berth/jobs"
)

// UnpackMemory is what unpacking an image for the driver "kernel" may take:
// what unsquashfs has for its queues, and some more. With 256 MiB it was killed.
const UnpackMemory = 512 * jobs.MiB

// Mount is an overlay of the driver "kernel" and what is to stand in it.
type Mount struct {
	Lower  string // the unpacked image, never changed
	Upper  string
	Work   string
	Merged string // an empty directory, on which it is mounted
	// Dirs and Files are mount points, made where they are missing; paths as
	// seen inside.
	Dirs  []string
	Files []string
}

// Argv is the command line by which berth-node mounts it and becomes argv,
// whose program must be an absolute path.
func (m Mount) Argv(node string, argv []string) []string {
	out := []string{node, "overlay-mount", "--lower", m.Lower, "--upper", m.Upper, "--work", m.Work, "--merged", m.Merged}
	for _, d := range m.Dirs {
		out = append(out, "--dir", d)
	}
	for _, f := range m.Files {
		out = append(out, "--file", f)
	}
	return append(append(out, "--"), argv...)
}

const mountUsage = "usage: overlay-mount --lower DIR --upper DIR --work DIR --merged DIR [--dir PATH]... [--file PATH]... -- PROGRAM ARGS..."

func parseMount(args []string) (m Mount, argv []string, ok bool) {
	for len(args) > 0 && args[0] != "--" {
		if len(args) < 2 || !filepath.IsAbs(args[1]) {
			return Mount{}, nil, false
		}
		v := args[1]
		switch args[0] {
		case "--lower":
			m.Lower = v
		case "--upper":
			m.Upper = v
		case "--work":
			m.Work = v
		case "--merged":
			m.Merged = v
		case "--dir":
			m.Dirs = append(m.Dirs, v)
		case "--file":
			m.Files = append(m.Files, v)
		default:
			return Mount{}, nil, false
		}
		args = args[2:]
	}
	if len(args) < 2 || !filepath.IsAbs(args[1]) || m.Lower == "" || m.Upper == "" || m.Work == "" || m.Merged == "" {
		return Mount{}, nil, false
	}
	return m, args[1:], true
}
