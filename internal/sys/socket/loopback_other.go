//go:build !linux

package socket

import (
	"errors"
	"net"
)

// LoopbackUser is not known where the kernel has no table of sockets.
func LoopbackUser(*net.TCPConn) (uid int, err error) { return 0, errors.ErrUnsupported }
