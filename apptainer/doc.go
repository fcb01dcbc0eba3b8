// Package apptainer is the backend "singularity": containers of Apptainer or
// SingularityCE.
//
// [Backend.Argv] writes the one command line that a job script shows; it is
// pure. [FindProgram] and [Environ] are what the node needs to run that line.
// When the program or the image is missing nothing is started and nothing
// falls back to the bare host: the errors say what is missing and where.
//
// [Backend.Open] makes an environment ready on the machine where it is kept:
// the image (images.go, unpack.go), the driver of its layer, tried before it is
// trusted (driver.go, probe.go), its limits (limits.go). All of it may be done
// by many at once, on one machine or on many that share the state directory.
package apptainer
