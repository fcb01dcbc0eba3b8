package container

import (
	"strings"
	"testing"

	"berth/jobs"
)

// A place with a network of its own that reaches something, or has a device, is none.
func TestClosed(t *testing.T) {
	own := jobs.Seen{MountNamespace: "mnt:[1]", NetNamespace: "net:[1]", Tried: true}
	for says, s := range map[string]jobs.Seen{
		"":                                own,
		"network devices (eth0, wlan0)":   {NetNamespace: "net:[1]", Devices: []string{"eth0", "wlan0"}},
		"it reaches the metadata address": {NetNamespace: "net:[1]", Tried: true, Reached: []string{"the metadata address"}},
		"network devices (eth0), and is":  {NetNamespace: "net:[1]", Devices: []string{"eth0"}, Reached: []string{"the metadata address"}},
	} {
		err := closed(&s, &jobs.Opening{Level: jobs.LevelEgress})
		if says == "" && err != nil || says != "" && (jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", says, err)
		}
		if got := shut(&s); (got == nil) != (err == nil) {
			t.Errorf("a room, %q: %v", says, got)
		}
		if err := closed(&s, &jobs.Opening{Level: jobs.LevelFS}); err != nil {
			t.Errorf("an open network, %q: %v", says, err)
		}
	}
}
