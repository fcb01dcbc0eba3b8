// Package node dispatches the verbs that run on compute nodes and inside
// environments: the runner, the guest, and a local job's turn in the queue.
// It is what berth-node is made of; a berth that was built without an embedded
// berth-node has it too, and uses itself. One with an embedded berth-node has the
// few verbs with which it starts itself, so that the rest is not linked twice.
package node

import "slices"

// Is tells whether a command line (without the program) is one of ours.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains(Verbs, args[0])
}
