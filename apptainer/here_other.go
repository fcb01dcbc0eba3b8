//go:build !linux

package apptainer

func onlyCgroup2() bool { return false }
