// Package templates holds the texts that berth writes for other programs to
// read, and the only quoting used in them.
//
// A job script is rendered strictly: a key that the template names and nobody
// set is an error, and so is a control character in any value, because a line
// break inside a header would be a directive of its own. The same launch
// always gives the same bytes. Nothing here asks a scheduler, reads a file
// system or a clock.
package templates
