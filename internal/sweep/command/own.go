package command

// What each task has for itself where tasks are contained.
const (
	OwnAuto      = "auto"      // a room where that holds, else a container
	OwnRoom      = "room"      // a room below the worker's container
	OwnContainer = "container" // a container
	OwnNothing   = "nothing"   // all tasks of a worker share its container
)

// Owns are all of these words.
var Owns = []string{OwnAuto, OwnRoom, OwnContainer, OwnNothing}
