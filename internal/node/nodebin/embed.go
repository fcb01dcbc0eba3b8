//go:build embednode

package nodebin

import _ "embed"

// Made by scripts/build, with scripts/build.d/pack. They are no embed.FS: reading from
// that copies, and MiBs of garbage at every start bring on a collection.
var (
	//go:embed berth-node-linux.zst
	embedded []byte
	//go:embed berth-node-linux.txt
	embeddedList string
)
