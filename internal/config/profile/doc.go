// Package profile reads profiles/NAME.toml: what a site needs of berth, such
// as its partition, its modules, where nodes have fast local disk, and which
// options its Slurm refuses. A key that is unknown is an error with its line.
package profile
