// Package inroom runs commands of this machine, with its files and its user, in a room
// whose network is a list or none (docs/network.md): what builds images.
package inroom

import (
	"io"

	"berth/jobs"
)

// Options say what commands reach, and as whom they run.
type Options struct {
	Network jobs.Network
	Phase   string // in the record
	Dir     string // what was decided is recorded there
	Added   string // where the user adds words
	// OwnIDs has commands run as root over this user's ids in /etc/subuid, in place of as
	// this user: in a room no program of root's can give ids.
	OwnIDs bool
	// Log takes what the guest says; never nil.
	Log io.Writer
}

func unavailable(err error) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "a room for commands of this machine is not available here", Err: err,
		Hint: "an ordinary user makes one where the kernel allows user namespaces: berth doctor --on-node; without it: --network open"}
}
