// Package command is a task of a sweep as it is run: its parameters, its id and the
// command that is made of them. It is linked into the program for the nodes, which
// reads no definitions.
package command
