// Package docker opens containers with a real Docker daemon, with the
// backend alone: the tests hold the guest's session themselves. They need the
// build tag "docker" and the image that scripts/testbed has made.
package docker
