// Package keys reads the keys that task files and profiles have in common, so
// that both mean the same by them: the options of Slurm and the image.
package keys
