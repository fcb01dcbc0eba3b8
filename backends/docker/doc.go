// Package docker is the backend "docker": containers of Docker or Podman, by
// their command line program.
//
// A container is made with few rights (no capability that its own root does
// not need to install software, no new privileges, bounded processes, its
// temporary directories in bounded memory) and with limits that are looked at
// before they are trusted: a daemon without a cgroup drops a limit with a
// warning at most, and here it is an error, or a note where the limit is a
// default.
//
// The guest is the container's first process, and the program's standard
// streams are its control stream: when the program dies, the daemon closes
// them, and the guest leaves. A container is berth's only by its labels; one
// that has the name but not the labels is left alone.
//
// Every question to the daemon is bounded in time; the pull of an image is
// not. A daemon that was killed leaves a container with its files, and the
// next Open starts it again.
package docker
