//go:build !linux

package queue

import (
	"errors"

	"berth/jobs"
)

var errLinux = errors.New("it needs Linux: processes are told apart by /proc")

func place() (location, error)               { return location{}, errLinux }
func processStart(int) (uint64, error)       { return 0, errLinux }
func processAlive(int, uint64) bool          { return false }
func terminate(int, uint64) error            { return errLinux }
func lock(string) (unlock func(), err error) { return nil, errLinux }
func become([]string) error                  { return errLinux }
func machineMemory() jobs.Bytes              { return 0 }
