// Package modal makes environments in Modal's sandboxes, through Modal's own SDK
// for Go. It is the inside of the program berth-backend-modal, see package
// provider; docs/modal.md is for its users.
//
// One sandbox is one environment: it has the request's name and tags, and a limit
// of life, from the call on that makes it. So a call whose answer was lost leaves
// nothing that would not be found by name, or would not end by itself. Modal's
// names are taken only by what runs: the files of what has ended are in the image
// that is published under the same name, and in the exit snapshot of the last
// sandbox of that name.
//
// The SDK is used as far as it goes. What its types do not show is read from the
// answers as they pass ([conn]), and commands are run by the SDK's own stubs
// ([worker]), so that a stream that breaks goes on where it was cut, input
// included, and takes little memory. No command that may have run is started
// again: a start carries an id of ours, by which a repeated one is the same one.
package modal
