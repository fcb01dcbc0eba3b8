// Pack writes what scripts/build compresses and package nodebin unpacks: ELF
// programs, one behind the other, to OUT.bin, and the list of them to OUT.txt.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"berth/internal/node/nodebin"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack OUT ARCH=PROGRAM...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(out string, programs []string) error {
	var all []byte
	var list strings.Builder
	for _, word := range programs {
		arch, file, _ := strings.Cut(word, "=")
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		text := f.Section(".text")
		if text == nil {
			return errors.New(file + " has no section .text")
		}
		sum := sha256.Sum256(data)
		p := nodebin.Packed{Arch: arch, Sum: hex.EncodeToString(sum[:]), Size: int64(len(data)), Code: int64(text.Offset), Len: int64(text.Size)}
		list.WriteString(p.String())
		nodebin.Calls(arch, data[p.Code:][:p.Len], true)
		all = append(all, data...)
	}
	if err := os.WriteFile(out+".bin", all, 0o600); err != nil {
		return err
	}
	return os.WriteFile(out+".txt", []byte(list.String()), 0o600)
}
