//go:build !linux

package run

// fionread asks how many bytes wait in a pipe: _IOR('f', 127, int) of the BSDs.
const fionread = 0x4004667f
