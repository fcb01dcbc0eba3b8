package nodebin

import "encoding/binary"

// Calls writes the addresses in the machine code of a program as they count from
// the code's beginning, or back: as they count from where they stand. Written from
// the beginning, all calls of a function are the same bytes, which compress.
//
// Every pattern that looks like one is rewritten, also where it is none. That
// loses nothing: what tells a pattern is never written, so both ways find the same
// ones.
func Calls(arch string, code []byte, fromBeginning bool) {
	sign := uint32(1)
	if !fromBeginning {
		sign = ^uint32(0) // -1
	}
	switch arch {
	case "amd64":
		callsAMD64(code, sign)
	case "arm64":
		callsARM64(code, sign)
	}
}

// callsAMD64 finds CALL and JMP, and what reads, writes, compares or takes the
// address of a variable: an opcode behind a prefix of 64 bits, relative to RIP.
func callsAMD64(code []byte, sign uint32) {
	for i := 0; i+8 <= len(code); {
		at := 0
		switch b := code[i]; {
		case b == 0xe8 || b == 0xe9:
			at = 1
		case b&0xf8 == 0x48 && code[i+2]&0xc7 == 0x05:
			switch code[i+1] {
			case 0x39, 0x3b, 0x83, 0x89, 0x8b, 0x8d:
				at = 3
			}
		}
		if at == 0 {
			i++
			continue
		}
		end := i + at + 4
		a := code[i+at : end]
		binary.LittleEndian.PutUint32(a, binary.LittleEndian.Uint32(a)+sign*uint32(end))
		i = end
	}
}

// callsARM64 finds BL, which counts in instructions, and ADRP, in pages of 4 KiB
// with its two lowest bits apart.
func callsARM64(code []byte, sign uint32) {
	for i := 0; i+4 <= len(code); i += 4 {
		switch w := binary.LittleEndian.Uint32(code[i:]); {
		case w>>26 == 0x25:
			w = w&^0x3ffffff | (w+sign*uint32(i/4))&0x3ffffff
			binary.LittleEndian.PutUint32(code[i:], w)
		case w&0x9f000000 == 0x90000000:
			page := w>>29&3 | w>>3&0x1ffffc
			page += sign * uint32(i>>12)
			w = w&0x9f00001f | page&3<<29 | page&0x1ffffc<<3
			binary.LittleEndian.PutUint32(code[i:], w)
		}
	}
}
