//go:build !linux

package apptainer

import "berth/jobs"

func jobMemory() (limit jobs.Bytes, ok bool) { return 0, false }

func onlyCgroup2() bool { return false }
