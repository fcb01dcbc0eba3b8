package room

import "golang.org/x/sys/unix"

// capabilities is how many the kernel knows.
func capabilities() (n int) {
	for n < 64 {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(n), 0, 0, 0); err != nil {
			break
		}
		n++
	}
	return n
}

func effectiveCapabilities() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&head, &data[0])
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32, err
}

// CommandCapabilities are those that commands may have in the room, of kept: none,
// but for a fake root's, whose programs change owners and users, and then none that the container
// did not give. Even these must not take a port below 1024, where names answer, or forge packets.
func (r *Room) CommandCapabilities(kept uint64) uint64 {
	return kept & r.most & VisitorCapabilities
}

// VisitorCapabilities are those that commands of another guest may have, which has come
// into the room.
const VisitorCapabilities = ^uint64(1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_ADMIN)

// DropCapabilities leaves the calling thread, and what it starts, only those of
// mask, and returns what programs can still have.
func DropCapabilities(mask uint64) (left uint64, err error) {
	var bounding uint64
	for c := range capabilities() {
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && has == 1 {
			bounding |= 1 << c
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return bounding, err
	}
	permitted := uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32
	const setpcap = 1 << unix.CAP_SETPCAP
	if permitted&setpcap != 0 {
		if data[0].Effective |= setpcap; bounding&^mask != 0 {
			if err := unix.Capset(&head, &data[0]); err != nil {
				return bounding, err
			}
		}
		for c := range 64 {
			if bounding&^mask&(1<<c) != 0 {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
					return bounding, err
				}
			}
		}
		bounding &= mask
	}
	for i := range data {
		m := uint32(mask >> (32 * i))
		data[i].Effective &= m
		data[i].Permitted &= m
		data[i].Inheritable &= m
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // Linux before 4.3 has none
	if err := unix.Capset(&head, &data[0]); err != nil {
		return bounding, err
	}
	// Where the bounding set cannot be made smaller, no program gives more than
	// is permitted now: NoNewPrivs is set.
	if permitted&setpcap == 0 {
		return permitted & mask, nil
	}
	return bounding, nil
}
