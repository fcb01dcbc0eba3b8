//go:build !linux

package session

import (
	"errors"
	"syscall"
)

// TakeFrom is Linux's.
func (*Session) TakeFrom(int) {}

func (*network) take(int) (*connection, error) { return nil, errors.ErrUnsupported }

type connection struct{ raw syscall.RawConn }

func (*connection) Read([]byte) (int, error)  { return 0, errors.ErrUnsupported }
func (*connection) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }
func (*connection) await() error              { return errors.ErrUnsupported }
func (*connection) closeWrite() error         { return errors.ErrUnsupported }
func (*connection) close()                    {}
