//go:build embednode

package nodebin

import (
	_ "embed"
	"strings"
)

// Made by scripts/build: berth-node for each architecture, compressed, and beside it
// the SHA-256 of the program. They are no embed.FS: reading from that copies, and
// MiBs of garbage at every start bring on a collection.
var (
	//go:embed berth-node-linux-amd64.zst
	amd64 []byte
	//go:embed berth-node-linux-amd64.sha256
	amd64Sum string
	//go:embed berth-node-linux-arm64.zst
	arm64 []byte
	//go:embed berth-node-linux-arm64.sha256
	arm64Sum string
)

func embedded(arch string) (compressed []byte, sum string) {
	switch arch {
	case "amd64":
		return amd64, strings.TrimSpace(amd64Sum)
	case "arm64":
		return arm64, strings.TrimSpace(arm64Sum)
	}
	return nil, ""
}
