// Package sitefile reads the file in which the administrators of a site bound what berth
// does on a machine, and refuses what it forbids. The file is root's, and only narrows:
// no configuration, task file, flag or variable of a user's makes it say less.
//
// It is read where something is planned, and again on the node where that begins: each
// machine's own file holds there. docs/admins.md has its keys.
package sitefile
