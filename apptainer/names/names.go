// Package names has what other rooms have to know of Apptainer and SingularityCE,
// behind names that say what it is for. It imports nothing of berth but what is below
// all rooms.
package names

import (
	"slices"
	"strings"

	"berth/internal/sys/pattern"
)

// Own begin the variables of the program itself, on the host and in its containers;
// Passed those whose values it sets inside.
var (
	Own    = []string{"APPTAINER_", "SINGULARITY_"}
	Passed = []string{"APPTAINERENV_", "SINGULARITYENV_"}
)

// IsOwn reports whether a variable, by its name or with its value, is the program's.
func IsOwn(variable string) bool {
	return slices.ContainsFunc(Own, func(p string) bool { return strings.HasPrefix(variable, p) })
}

// OfContainers reports whether a variable is the program's, or is set by way of it.
func OfContainers(variable string) bool {
	return IsOwn(variable) || slices.ContainsFunc(Passed, func(p string) bool { return strings.HasPrefix(variable, p) })
}

// Reserved begin the variables that no task sets, whatever follows.
var Reserved = []string{"APPTAINER", "SINGULARITY"}

// BindPathSetting is where a site has all containers see a directory of the host.
const BindPathSetting = `"bind path" in apptainer.conf`

// FUSEHelpers are the programs that a container's file system may live in.
var FUSEHelpers = []string{"squashfuse_ll", "squashfuse", "fuse-overlayfs", "fuse2fs"}

// slowMount is what the program says of a helper that has not mounted its file system
// within the time that is given to it, 10 s.
var slowMount = pattern.Lazy(`failed to mount \S+ in [0-9.]+m?s`)

// SlowMount tells whether the program has given up on a helper that was slow: with
// less to do for the machine the same may work.
func SlowMount(said string) bool { return slowMount().MatchString(said) }

// WasSetuid says why a container has no user namespace, and NoSetuid how a site can
// make containers that have one.
const (
	WasSetuid = "the container was opened by a setuid Apptainer, without a user namespace"
	NoSetuid  = "a site that allows user namespaces can install Apptainer without setuid"
)
