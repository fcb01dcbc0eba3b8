//go:build linux

package guest

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
)

// asked is what a filter says of a call. The machine of package bpf reads words
// as they come over a network, the kernel its own.
func asked(t *testing.T, vm *bpf.VM, arch, number uint32) int {
	t.Helper()
	data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, number), arch)
	got, err := vm.Run(append(data, make([]byte, 56)...))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFilter(t *testing.T) {
	for arch, kinds := range map[string]map[string]struct {
		audit   uint32
		refused []uint32
		allowed []uint32
	}{
		"amd64": {
			"native": {auditAMD64, []uint32{248, 249, 250, 425, 426, 427, 321, 298, 323, 304, 246, 320},
				[]uint32{0, 1, 56, 59, 101, 155, 165, 272, 308, 317, 435, 1023, 0xffffffff}}, // clone, execve, ptrace, pivot_root, mount, unshare, setns, seccomp, clone3; none
			"x32":    {auditAMD64, []uint32{x32Bit | 250, x32Bit | 248, x32Bit | 425, x32Bit | 528}, []uint32{x32Bit, x32Bit | 520, x32Bit | 521}},
			"32-bit": {auditI386, []uint32{286, 287, 288, 425, 426, 427, 357, 336, 374, 342, 283}, []uint32{1, 3, 4, 11, 26, 120, 217, 310, 0xffffffff}},
		},
		"arm64": {
			"native": {auditARM64, []uint32{217, 218, 219, 425, 426, 427, 280, 241, 282, 265, 104, 294}, []uint32{40, 41, 63, 97, 117, 220, 221, 435, 0xffffffff}},
			"32-bit": {auditARM, []uint32{309, 310, 311, 425, 426, 427, 386, 364, 388, 371, 347}, []uint32{3, 4, 11, 26, 120, 337}},
		},
	} {
		prog := filter(arch, where{})
		vm, err := bpf.NewVM(prog)
		if err != nil {
			t.Fatal(arch, err)
		}
		if _, err := bpf.Assemble(prog); err != nil {
			t.Fatal(arch, err)
		}
		for kind, c := range kinds {
			for _, n := range c.refused {
				if got := asked(t, vm, c.audit, n); got != refuseCall {
					t.Errorf("%s, %s: call %d: %#x", arch, kind, n, got)
				}
			}
			for _, n := range c.allowed {
				if got := asked(t, vm, c.audit, n); got != allowCall {
					t.Errorf("%s, %s: call %d: %#x", arch, kind, n, got)
				}
			}
		}
		for _, m := range machines(arch) {
			refused := map[uint32]bool{}
			for _, n := range m.calls {
				refused[n] = true
			}
			for n := range uint32(1024) {
				if got, want := asked(t, vm, m.audit, n), refused[n]; (got == refuseCall) != want {
					t.Errorf("%s, %#x: call %d: %#x", arch, m.audit, n, got)
				}
			}
		}
		if got := asked(t, vm, 0xc0000016, 1); got != refuseCall {
			t.Errorf("%s: a call of another machine: %#x", arch, got)
		}
	}
	if filter("riscv64", where{}) != nil {
		t.Error("a filter of nobody's")
	}
}

// What a call may do depends on its first argument, and on the place.
func TestFilterArguments(t *testing.T) {
	const unix, inet, vsock = 1, 2, 40
	for _, c := range []struct {
		arch          string
		audit         uint32
		number, first uint32
		w             where
		refused       bool
	}{
		{"amd64", auditAMD64, 41, vsock, where{}, true},
		{"amd64", auditAMD64, x32Bit | 41, vsock, where{}, true},
		{"amd64", auditAMD64, 41, inet, where{true, true}, false},
		{"amd64", auditAMD64, 41, unix, where{}, false},
		{"amd64", auditI386, 359, vsock, where{}, true},
		{"amd64", auditI386, 102, 1, where{}, false},
		{"amd64", auditI386, 102, 1, where{isolated: true}, true},
		{"amd64", auditI386, 102, 3, where{isolated: true}, false},  // connect
		{"amd64", auditAMD64, 102, 1, where{isolated: true}, false}, // getuid
		{"amd64", auditAMD64, 302, 1, where{room: true}, true},
		{"amd64", auditAMD64, 302, 0, where{room: true}, false},
		{"amd64", auditAMD64, 302, 1, where{}, false},
		{"arm64", auditARM64, 198, vsock, where{true, true}, true},
		{"arm64", auditARM64, 198, inet, where{true, true}, false},
		{"arm64", auditARM, 281, vsock, where{}, true},
		{"arm64", auditARM, 369, 1, where{room: true}, true},
	} {
		prog := filter(c.arch, c.w)
		if _, err := bpf.Assemble(prog); err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(prog)
		if err != nil {
			t.Fatal(err)
		}
		data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, c.number), c.audit)
		data = binary.BigEndian.AppendUint32(append(data, make([]byte, 8)...), c.first)
		got, err := vm.Run(append(data, make([]byte, 44)...))
		if err != nil || (got == refuseCall) != c.refused {
			t.Errorf("%s %#x: call %d with %d in %+v: %#x, %v", c.arch, c.audit, c.number, c.first, c.w, got, err)
		}
	}
}
