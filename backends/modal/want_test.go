package modal

import (
	"strings"
	"testing"
	"time"

	"berth/backends/external/protocol"
)

// What is wanted in Modal's terms, of what berth asks for.
func TestWhatIsWanted(t *testing.T) {
	const day = 24 * 60 * 60
	for name, c := range map[string]struct {
		spec    protocol.Spec
		options map[string]string
		right   func(*want) bool
	}{
		"nothing": {protocol.Spec{}, nil, func(w *want) bool {
			return w.image == "debian:12" && w.app == "berth" && w.params.CPU == 0 && w.cost() != nil
		}},
		"a whole day":         {protocol.Spec{LifetimeSeconds: day}, nil, func(w *want) bool { return w.params.Timeout == 24*time.Hour }},
		"more than Modal has": {protocol.Spec{LifetimeSeconds: 2 * day}, nil, func(w *want) bool { return w.params.Timeout == 24*time.Hour }},
		"no word of its end":  {protocol.Spec{}, nil, func(w *want) bool { return w.params.Timeout == 24*time.Hour && w.params.IdleTimeout == 5*time.Minute }},
		"idle":                {protocol.Spec{IdleSeconds: 77}, nil, func(w *want) bool { return w.params.IdleTimeout == 77*time.Second }},
		"idle for its life":   {protocol.Spec{IdleSeconds: 77, LifetimeSeconds: 60}, nil, func(w *want) bool { return w.params.IdleTimeout == time.Minute }},
		"an odd CPU": {protocol.Spec{CPUs: 3, MemoryMiB: 512}, nil, func(w *want) bool {
			return w.params.CPU == 1.5 && w.params.CPULimit == 1.5 && w.params.MemoryMiB == 512 && w.params.MemoryLimitMiB == 512
		}},
		"a GPU":                     {protocol.Spec{GPU: "nvidia"}, nil, func(w *want) bool { return w.params.GPU == "T4" && len(w.notes) == 1 && w.cost().PerHour > 0.59 }},
		"GPUs":                      {protocol.Spec{GPU: "nvidia"}, map[string]string{"gpu": "h100:8"}, func(w *want) bool { return w.params.GPU == "H100:8" && w.cost().PerHour > 8*3.9 }},
		"one of no price":           {protocol.Spec{GPU: "nvidia"}, map[string]string{"gpu": "X1"}, func(w *want) bool { return w.params.GPU == "X1" && w.cost() == nil }},
		"regions":                   {protocol.Spec{}, map[string]string{"region": "us-east, ,eu"}, func(w *want) bool { return strings.Join(w.params.Regions, "|") == "us-east|eu" }},
		"a docker's image":          {protocol.Spec{Image: "docker://debian:13"}, nil, func(w *want) bool { return w.image == "debian:13" }},
		"files that outlive an end": {protocol.Spec{Persistent: true}, nil, func(w *want) bool { return w.params.ExperimentalOptions["enable_exit_snapshot"] == true }},
		"none with a GPU":           {protocol.Spec{Persistent: true, GPU: "nvidia"}, nil, func(w *want) bool { return w.params.ExperimentalOptions == nil }},
		"a list of nothing": {protocol.Spec{Network: protocol.Network{Mode: protocol.NetworkAllow}}, nil, func(w *want) bool {
			return !w.params.BlockNetwork && w.params.OutboundDomainAllowlist != nil && len(w.params.OutboundDomainAllowlist.Entries) == 0 && w.params.OutboundCIDRAllowlist != nil
		}},
	} {
		w, err := settle(&protocol.Request{Name: "berth-wanted", Spec: &c.spec, Options: c.options})
		if err != nil || !c.right(w) {
			t.Errorf("%s: %+v %v", name, w, err)
		}
	}
}
