//go:build !linux

package run_test

func family(string) {}
