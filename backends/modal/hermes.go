package modal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"berth/backends/external/protocol"
)

// hermesSnapshot finds the image that Hermes Agent has recorded for a task of this
// environment's name, in its own file; "" is none. An environment that is made for
// the first time begins with it.
func hermesSnapshot(r *protocol.Request) string {
	path := r.Options[optHermes]
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		path = filepath.Join(home, ".hermes", "modal_snapshots.json")
	}
	b, err := os.ReadFile(path)
	if err != nil || r.Ref != "" {
		return ""
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return ""
	}
	task := r.Tags[protocol.TagName]
	for _, key := range []string{"direct:" + task, task} { // the second is how older ones wrote it
		var id string
		if json.Unmarshal(all[key], &id) == nil && strings.HasPrefix(id, "im-") {
			return id
		}
	}
	return ""
}
