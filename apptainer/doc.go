// Package apptainer is the backend "singularity": containers of Apptainer or
// SingularityCE.
//
// [Backend.Argv] writes the one command line that a job script shows; it is
// pure. [FindProgram] and [Environ] are what the node needs to run that line.
// When the program or the image is missing nothing is started and nothing
// falls back to the bare host: the errors say what is missing and where.
package apptainer
