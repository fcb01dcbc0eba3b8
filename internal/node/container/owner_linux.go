package container

import (
	"bytes"
	"encoding/binary"
	"os"
	"syscall"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// owners are who listens on a socket through which no listener can be asked, because its
// queue is full or it takes datagrams: of an abstract one the kernel tells all, of a
// path who has made the file.
func owners(s jobs.Socket, here string) (out []peer) {
	if here == "" {
		return nil
	}
	if !s.Abstract() {
		fi, err := os.Stat(here)
		if err != nil {
			return nil
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			out = append(out, peer{uid: int(st.Uid)})
		}
		return out
	}
	for _, uid := range abstractOwners(here[1:]) {
		out = append(out, peer{uid: uid})
	}
	return out
}

// What <linux/unix_diag.h> and <linux/sock_diag.h> call UNIX_DIAG_NAME,
// UNIX_DIAG_UID, UDIAG_SHOW_NAME, UDIAG_SHOW_UID and SOCK_DIAG_BY_FAMILY.
const (
	diagName, diagUID         = 0, 7
	diagShowName, diagShowUID = 0x01, 0x40
	diagByFamily              = 20
	stateListen               = 10 // TCP_LISTEN
)

// abstractOwners asks the kernel for the users of all sockets of this network
// namespace that listen on an abstract name. A kernel before 5.3 tells none.
func abstractOwners(name string) (uids []int) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	limit := unix.Timeval{Sec: 2}
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) != nil {
		return nil
	}
	// nlmsghdr, and struct unix_diag_req: family, protocol, pad, states, inode, show, cookie.
	req := make([]byte, 0, 40)
	le := binary.NativeEndian
	req = le.AppendUint32(req, 40)
	req = le.AppendUint16(req, diagByFamily)
	req = le.AppendUint16(req, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req = append(req, make([]byte, 8)...)
	req = append(req, unix.AF_UNIX, 0, 0, 0)
	req = le.AppendUint32(req, 1<<stateListen)
	req = le.AppendUint32(req, 0)
	req = le.AppendUint32(req, diagShowName|diagShowUID)
	req = append(req, make([]byte, 8)...)
	if unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil
		}
		msgs, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return uids
			case unix.NLMSG_ERROR:
				return nil
			}
			if uid, ok := diagOwner(m.Data, name); ok {
				uids = append(uids, uid)
			}
		}
	}
}

// diagOwner reads one answer: struct unix_diag_msg and its attributes.
func diagOwner(data []byte, name string) (uid int, ok bool) {
	const message, header = 16, 4
	if len(data) < message {
		return 0, false
	}
	named := false
	for data = data[message:]; len(data) >= header; {
		size := int(binary.NativeEndian.Uint16(data))
		if size < header || size > len(data) {
			return 0, false
		}
		switch value := data[header:size]; binary.NativeEndian.Uint16(data[2:]) {
		case diagName:
			named = len(value) > 1 && value[0] == 0 && bytes.Equal(value[1:], []byte(name))
		case diagUID:
			if len(value) >= 4 {
				uid, ok = int(binary.NativeEndian.Uint32(value)), true
			}
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return uid, ok && named
}
