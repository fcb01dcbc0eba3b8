//go:build embednode

package nodebin

import (
	"embed"
	"strings"
)

// Made by scripts/build: berth-node for each architecture and, beside it, its
// SHA-256, so that it need not be computed at every start.
//
//go:embed berth-node-linux-*
var files embed.FS

func embedded(arch string) (data []byte, sum string) {
	data, err := files.ReadFile("berth-node-linux-" + arch)
	if err != nil {
		return nil, ""
	}
	b, err := files.ReadFile("berth-node-linux-" + arch + ".sha256")
	if err != nil {
		return nil, ""
	}
	return data, strings.TrimSpace(string(b))
}
