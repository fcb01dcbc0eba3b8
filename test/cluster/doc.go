// Package cluster tests berth on real Slurm clusters with real Apptainer: the
// ones that scripts/testbed starts. It is built with the tag "cluster" and run
// by scripts/test, as the ordinary user alice on the login node.
package cluster
