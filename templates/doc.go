// Package templates holds the texts that berth writes for other programs to
// read, and the only quoting used in them.
//
// A job script is rendered strictly: a control character in any value is an
// error, because a line break inside a header would be a directive of its own.
// The same launch always gives the same bytes. Nothing here asks a scheduler,
// reads a file system or a clock.
//
// Nothing is rendered by text/template: that finds methods by name, and in a
// program that does so the linker leaves out no exported method of any type.
package templates
