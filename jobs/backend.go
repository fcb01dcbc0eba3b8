package jobs

import "context"

// VerbRank is berth-node's word for one of several tasks of a job.
const VerbRank = "rank"

// RankArgv is what runs in each of several tasks of the attempt in dir, by
// [NodeScheduler.Ranks]. program is berth-node, by a path that all nodes see.
func RankArgv(program, dir string) []string { return []string{program, VerbRank, "--attempt", dir} }

// VerbFollow is the word of berth, and of berth-node, for doing what ended jobs
// need done next.
const VerbFollow = "follow"

// VerbChild is the word of berth-node for submitting a job that a task has asked for.
const VerbChild = "child"

// VerbWatch is their word for going on with a job of this machine's queue whose
// process has ended; the attempt's directory follows.
const VerbWatch = "queue-watch"

// VerbBuild is berth-node's word for what a job runs that builds an image.
const VerbBuild = "image-build"

// Where berth-node stands while an image is built, over the shell of the base
// image, and what an empty directory covers there, so that the container program
// reads no script of the base image before.
const (
	BuildShell = "/bin/sh"
	BuildEnv   = "/" + ImageDir + "/env"
)

// ImageDir is the directory at the top of an image with what its format adds to the
// files of a system: the scripts that set its variables, among others.
const ImageDir = ".singularity.d"

// VerbPull is berth-node's verb for a job that fetches images. NoDigest stands for
// a digest that could not be resolved: the container program then resolves the
// name itself.
const (
	VerbPull = "image-pull"
	NoDigest = "-"
)

// Backend makes environments. A backend that needs no stream of its own gives
// an argv that runs the guest in the environment, over stdin and stdout.
type Backend interface {
	// Name is the word of the configuration: "singularity", "local".
	Name() string
	// Level is the containment that the backend gives.
	Level() Level
	// Check tells whether the backend can be used on this machine.
	Check(ctx context.Context) Checked
	// Argv returns the command line that opens the environment and runs the
	// guest there with guestArgs. It is pure; values known only on the node
	// stand as the Hole words.
	Argv(in Invocation, guestArgs []string) ([]string, error)
}
