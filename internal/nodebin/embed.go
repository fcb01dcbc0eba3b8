//go:build embednode

package nodebin

import (
	_ "embed"
	"strings"
)

// Made by scripts/build: berth-node for each architecture and, beside it, its
// SHA-256, so that it need not be computed at every start. They are no
// embed.FS: reading from that copies, and MiBs of garbage at every start bring
// on a collection.
var (
	//go:embed berth-node-linux-amd64
	amd64 []byte
	//go:embed berth-node-linux-amd64.sha256
	amd64Sum string
	//go:embed berth-node-linux-arm64
	arm64 []byte
	//go:embed berth-node-linux-arm64.sha256
	arm64Sum string
)

func embedded(arch string) (data []byte, sum string) {
	switch arch {
	case "amd64":
		return amd64, strings.TrimSpace(amd64Sum)
	case "arm64":
		return arm64, strings.TrimSpace(arm64Sum)
	}
	return nil, ""
}
