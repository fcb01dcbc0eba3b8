package apptainer

import (
	"os"
	"slices"

	"berth/jobs"
)

// covers are mounted over what stands in every container: the scripts of image and
// layer, which the container program would run before the guest; the names of the
// user's kernel keys; and the tree of cgroups, of which the user may own a part.
var covers = []jobs.Mount{
	{Source: jobs.PlaceholderEmpty, Destination: scriptsDir},
	{Source: jobs.PlaceholderKeys, Destination: "/proc/keys"},
	{Source: jobs.PlaceholderKeys, Destination: "/proc/key-users"},
	{Source: jobs.PlaceholderCgroups, Destination: cgroupDir},
}

// coversOf are those of a place. Below a room's /proc the kernel shows nothing that is
// covered in the container's, and mounts none: the room covers its own.
func coversOf(p jobs.Place) []jobs.Mount {
	if !p.BareProc() {
		return covers
	}
	return slices.DeleteFunc(slices.Clone(covers), func(m jobs.Mount) bool { return m.Source == jobs.PlaceholderKeys })
}

// scriptsDir is covered alone: without the rest of /.singularity.d the container
// program runs the image's /environment.
const scriptsDir = "/.singularity.d/env"

const cgroupDir = "/sys/fs/cgroup"

// Covers are the values of the placeholders of what covers something, on this
// machine; empty is a directory that stays empty. Cgroups of version 2 are the
// machine's own, mounted read-only: programs read their limits there. In those of
// version 1 every controller is a mount of its own, which would stay writable.
func Covers(empty string) jobs.Placeholders {
	h := jobs.Placeholders{jobs.PlaceholderEmpty: empty, jobs.PlaceholderKeys: "", jobs.PlaceholderCgroups: ""}
	if _, err := os.Stat("/proc/keys"); err == nil {
		h[jobs.PlaceholderKeys] = os.DevNull
	}
	if fi, err := os.Stat(cgroupDir); err == nil && fi.IsDir() {
		h[jobs.PlaceholderCgroups] = empty
		if onlyCgroup2() {
			h[jobs.PlaceholderCgroups] = cgroupDir
		}
	}
	return h
}
