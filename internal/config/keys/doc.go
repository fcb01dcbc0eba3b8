// Package keys has the table of what a place consists of ([Fields]), and reads the keys
// that task files, profiles and the configuration have in common, so that all mean the
// same by them.
package keys
