// Package review is what git does for the review of a result and for its merge: the tree
// that the target would have, what changes and which of it to look at first, and the move
// of the target, with its work tree where it has one.
//
// Nothing of the result's is run. Trees are made without a work tree, in a git directory
// of berth's own ([workspace.Borrowed]). In the user's checked-out work tree, and there
// alone, their own configuration and filters hold, and still no hook.
package review
