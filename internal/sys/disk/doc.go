// Package disk is what several parts do with files and directories: a durable
// new file, a durable name, and the removal of a tree that an attacker may
// have written.
package disk
