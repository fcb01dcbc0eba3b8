package apptainer

import (
	"strings"

	"berth/apptainer/names"
	"berth/jobs"
)

// failedFor is the reason for which a container did not start, by what the program
// said; its error has no text of its own. Nil is that none is known.
func failedFor(said string) *jobs.Error {
	has := func(word string) bool { return strings.Contains(said, word) }
	switch {
	case has("currently in use by another process"):
		return &jobs.Error{Kind: jobs.KindAgain, Hint: "another job has the overlay open; wait for it"}
	case has("pthread_create failed") || has("failed to create new OS thread") || has("fork/exec") && has("resource temporarily unavailable"):
		return &jobs.Error{Kind: jobs.KindInfra,
			Hint: "this user may have no more processes on the node (ulimit -u), or the node has no more: " +
				"a task of yours may have taken them, see ps -u $USER there"}
	case has("trying to read the squashfs image"):
		return &jobs.Error{Kind: jobs.KindConfig, Hint: "the image is damaged or cut off: copy or make it again"}
	case has("setgroups") || has("user namespace") || has("unprivileged"):
		return &jobs.Error{Kind: jobs.KindConfig,
			Hint: "this node forbids user namespaces: ask the site for a setuid Apptainer, " +
				"or for kernel.unprivileged_userns_clone / AppArmor settings"}
	case names.SlowMount(said):
		return &jobs.Error{Kind: jobs.KindInfra,
			Hint: "the node has too much to do, or FUSE does not work there: try again, or look at it: berth doctor --on-node"}
	case has("fuse"):
		return &jobs.Error{Kind: jobs.KindConfig,
			Hint: "FUSE does not work on this node: is /dev/fuse there, and are squashfuse and fuse-overlayfs installed?"}
	}
	return nil
}
