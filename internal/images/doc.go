// Package images keeps images of containers, once for all machines that see the
// state directory: a file for each content, named by its SHA-256, and small
// records that say which reference was found to be which content, and when.
//
// It knows no HTTP: the container program fetches, and what a registry has
// under a name now is asked by a [Resolver], which the program for the nodes
// goes without.
package images
