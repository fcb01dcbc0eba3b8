package wayout

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/netip"
	"time"

	"berth/internal/link/trunk"
)

// What stands before the first frame of each side.
const (
	supervisorMagic = "\x00berth-way\n"
	relayMagic      = "\x00berth-relay\n"
	version         = 1
)

// maxGrowth is what the windows of all connections may grow by on each side, in bytes.
const maxGrowth = 32 << 20

// hello is the supervisor's first message.
type hello struct {
	Version  int           `json:"version"`
	Widens   bool          `json:"widens,omitempty"` // its windows can grow
	Interval time.Duration `json:"interval_ns"`      // of its pings
}

// welcome is the relay's answer.
type welcome struct {
	Version int          `json:"version"`
	Widens  bool         `json:"widens,omitempty"` // its windows grow, because the supervisor's can
	Own     []netip.Addr `json:"own,omitempty"`    // addresses of its machine
	RelayProcess
}

// request is a look-up, or a connection.
type request struct {
	Name   string         `json:"name,omitempty"`
	To     netip.AddrPort `json:"to,omitzero"`
	Opened bool           `json:"opened,omitempty"` // a rule with the address itself opens it
}

// answer is what became of it.
type answer struct {
	Addrs    []netip.Addr `json:"addrs,omitempty"`
	Error    string       `json:"error,omitempty"`
	NotFound bool         `json:"not_found,omitempty"` // of a name
	Timeout  bool         `json:"timeout,omitempty"`
}

// Err is the error that it brings.
func (a answer) Err() error {
	if a.Error == "" {
		return nil
	}
	return errors.New(a.Error)
}

type (
	link   = trunk.Trunk[request, answer]
	stream = trunk.Stream[request, answer]
)

// Both sides of the socket prove that they know the secret. Each has a say in what is
// proven, so that nothing that was said before is good again.
const nonceSize = 32

// errStranger is the other side of a socket that does not know the secret.
var errStranger = errors.New("the other side does not know the secret")

func proof(secret, who string, nonces []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = h.Write([]byte(who))
	_, _ = h.Write(nonces)
	return h.Sum(nil)
}

// proveFirst is the side that has connected.
func proveFirst(rw io.ReadWriter, secret string) error {
	nonces := make([]byte, 2*nonceSize)
	_, _ = rand.Read(nonces[:nonceSize])
	if _, err := rw.Write(nonces[:nonceSize]); err != nil {
		return err
	}
	said := make([]byte, nonceSize+sha256.Size)
	if _, err := io.ReadFull(rw, said); err != nil {
		return err
	}
	copy(nonces[nonceSize:], said)
	if !hmac.Equal(said[nonceSize:], proof(secret, "berth supervisor", nonces)) {
		return errStranger
	}
	_, err := rw.Write(proof(secret, "berth relay", nonces))
	return err
}

// proveSecond is the side that listens.
func proveSecond(rw io.ReadWriter, secret string) error {
	nonces := make([]byte, 2*nonceSize)
	if _, err := io.ReadFull(rw, nonces[:nonceSize]); err != nil {
		return err
	}
	_, _ = rand.Read(nonces[nonceSize:])
	if _, err := rw.Write(append(nonces[nonceSize:len(nonces):len(nonces)], proof(secret, "berth supervisor", nonces)...)); err != nil {
		return err
	}
	said := make([]byte, sha256.Size)
	if _, err := io.ReadFull(rw, said); err != nil {
		return err
	}
	if !hmac.Equal(said, proof(secret, "berth relay", nonces)) {
		return errStranger
	}
	return nil
}
