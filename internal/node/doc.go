// Package node dispatches the verbs that run on compute nodes and inside
// environments: the runner, the guest, and a local job's turn in the queue.
// It is what berth-node is made of; a berth that was built without an embedded
// berth-node has it too, and uses itself.
package node
