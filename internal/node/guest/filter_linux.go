package guest

import (
	"runtime"

	"golang.org/x/net/bpf"
)

// The calls that commands are refused: kernel keyrings, which no namespace keeps
// apart, so that they hold keys and tickets of the host's session; io_uring, which
// does things past every other filter; and what Docker's default list leaves to
// root of the host. Namespaces, mounts in one's own and ptrace are not among
// them: programs that contain others, and debuggers, need them, and
// capabilities hold the rest.

// noCall is a call that a machine does not have.
const noCall = ^uint32(0)

// refusedCall is a call and its numbers on the machines that [filter] knows.
type refusedCall struct {
	name                    string
	amd64, i386, arm64, arm uint32
}

var refusedCalls = []refusedCall{
	{"keyctl", 250, 288, 219, 311},
	{"add_key", 248, 286, 217, 309},
	{"request_key", 249, 287, 218, 310},
	{"io_uring_setup", 425, 425, 425, 425},
	{"io_uring_enter", 426, 426, 426, 426},
	{"io_uring_register", 427, 427, 427, 427},
	{"bpf", 321, 357, 280, 386},
	{"perf_event_open", 298, 336, 241, 364},
	{"userfaultfd", 323, 374, 282, 388},
	{"open_by_handle_at", 304, 342, 265, 371},
	{"kexec_load", 246, 283, 104, 347},
	{"kexec_file_load", 320, noCall, 294, 401},
	{"init_module", 175, 128, 105, 128},
	{"finit_module", 313, 350, 273, 379},
	{"delete_module", 176, 129, 106, 129},
	{"create_module", 174, 127, noCall, noCall},
	{"get_kernel_syms", 177, 130, noCall, noCall},
	{"query_module", 178, 167, noCall, noCall},
	{"iopl", 172, 110, noCall, noCall},
	{"ioperm", 173, 101, noCall, noCall},
	{"acct", 163, 51, 89, 51},
	{"swapon", 167, 87, 224, 87},
	{"swapoff", 168, 115, 225, 115},
	{"reboot", 169, 88, 142, 88},
	{"settimeofday", 164, 79, 170, 79},
	{"clock_settime", 227, 264, 112, 262},
	{"clock_settime64", noCall, 404, noCall, 404},
	{"stime", noCall, 25, noCall, noCall},
	{"quotactl", 179, 131, 60, 131},
	{"quotactl_fd", 443, 443, 443, 443},
	{"lookup_dcookie", 212, 253, 18, 249},
	{"nfsservctl", 180, 169, 42, 169},
	{"vm86", noCall, 166, noCall, noCall},
	{"vm86old", noCall, 113, noCall, noCall},
	{"uselib", 134, 86, noCall, 86},
	{"ustat", 136, 62, noCall, 62},
	{"sysfs", 139, 135, noCall, 135},
	{"_sysctl", 156, 149, noCall, 149},
	{"syslog", 103, 103, 116, 103},
}

// refusedWith is a call that is refused where its first argument has a value.
type refusedWith struct {
	refusedCall
	first uint32
}

var (
	// In a room the limits of the first process may not be set: with one of processor
	// time the kernel would end the guest, which no signal reaches there.
	limitsOfFirst = refusedWith{refusedCall{"prlimit64", 302, 340, 261, 369}, 1}
	// Sockets to the hypervisor and to other virtual machines: no network namespace
	// holds these.
	hypervisor = refusedWith{refusedCall{"socket", 41, 359, 198, 281}, 40} // AF_VSOCK
	// The older way of 32-bit programs to a socket, of which the kernel shows a filter
	// no family.
	olderSocket = refusedWith{refusedCall{"socketcall", noCall, 102, noCall, 102}, 1} // SYS_SOCKET
)

// refused are those of a place.
func (w where) refused() []refusedWith {
	out := []refusedWith{hypervisor}
	if w.room {
		out = append(out, limitsOfFirst)
	}
	if w.isolated {
		out = append(out, olderSocket)
	}
	return out
}

// where says what the filter depends on.
type where struct {
	room     bool // commands run in a room
	isolated bool // there is no network but a loopback
}

// What the kernel calls the machine that a call is made for (audit.h).
const (
	auditAMD64 = 0xc000003e
	auditI386  = 0x40000003
	auditARM64 = 0xc00000b7
	auditARM   = 0x40000028
)

// Calls of the x32 kind have this bit in their number, and few numbers of their own.
const (
	x32Bit       = 0x40000000
	x32KexecLoad = 528
)

// Offsets in struct seccomp_data, and what a filter answers (seccomp(2)).
const (
	dataNumber = 0
	dataArch   = 4
	dataFirst  = 16 // the low word of the first argument: all machines here are little-endian
	allowCall  = 0x7fff0000
	refuseCall = 0x00050000 | 1 // EPERM
)

// machine is one of the kinds of calls that a processor takes.
type machine struct {
	audit  uint32
	calls  []uint32
	mask   uint32 // of the bits that count in a number
	number func(refusedCall) uint32
}

// machines are those of an architecture of Go's: its own and the 32-bit one.
func machines(arch string) []machine {
	calls := func(more []uint32, number func(refusedCall) uint32) []uint32 {
		for _, c := range refusedCalls {
			if n := number(c); n != noCall {
				more = append(more, n)
			}
		}
		return more
	}
	amd64 := func(c refusedCall) uint32 { return c.amd64 }
	i386 := func(c refusedCall) uint32 { return c.i386 }
	arm64 := func(c refusedCall) uint32 { return c.arm64 }
	arm := func(c refusedCall) uint32 { return c.arm }
	switch arch {
	case "amd64":
		return []machine{{auditAMD64, calls([]uint32{x32KexecLoad}, amd64), ^uint32(x32Bit), amd64}, {auditI386, calls(nil, i386), ^uint32(0), i386}}
	case "arm64":
		return []machine{{auditARM64, calls(nil, arm64), ^uint32(0), arm64}, {auditARM, calls(nil, arm), ^uint32(0), arm}}
	}
	return nil
}

// filter is the program that the kernel asks at each call of a command; none is an
// architecture that it was not written for.
func filter(arch string, w where) []bpf.Instruction {
	all := machines(arch)
	if len(all) == 0 {
		return nil
	}
	prog := []bpf.Instruction{bpf.LoadAbsolute{Off: dataArch, Size: 4}}
	for _, m := range all {
		var with []bpf.Instruction
		for _, r := range w.refused() {
			if n := m.number(r.refusedCall); n != noCall {
				with = append(with, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipFalse: 2},
					bpf.LoadAbsolute{Off: dataFirst, Size: 4}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: r.first})
			}
		}
		for i := 2; i < len(with); i += 3 { // to the two answers
			j := with[i].(bpf.JumpIf)
			j.SkipFalse = uint8(len(with) - i - 1)
			j.SkipTrue = j.SkipFalse + 1
			with[i] = j
		}
		// Past this machine's part: two words for the number, its calls, and the
		// two answers.
		prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: m.audit, SkipFalse: uint8(len(m.calls) + len(with) + 4)},
			bpf.LoadAbsolute{Off: dataNumber, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: m.mask})
		for i, n := range m.calls {
			prog = append(prog, bpf.JumpIf{Cond: bpf.JumpEqual, Val: n, SkipTrue: uint8(len(m.calls) - i + len(with))})
		}
		prog = append(prog, with...)
		prog = append(prog, bpf.RetConstant{Val: allowCall}, bpf.RetConstant{Val: refuseCall})
	}
	return append(prog, bpf.RetConstant{Val: refuseCall})
}

// ownFilter is the one of this program.
func ownFilter(w where) []bpf.Instruction { return filter(runtime.GOARCH, w) }
