package modal

import (
	"strconv"
	"strings"

	"berth/backends/external/protocol"
)

// Modal's list prices in dollars per second, from https://modal.com/pricing: of
// sandboxes, whose CPU and memory cost about three times those of functions. Who
// read the page on 3 and 8 October 2026 found these of CPU and memory; those of GPUs
// were found on days from 18 September to 8 October. What is used above the request
// would cost more, and cannot be: requests are limits here. Regions cost more.
const (
	pricesAsOf = "2026-09-18" // the oldest of these days
	perCore    = 0.00003942   // a physical core
	perGiB     = 0.00000667
	// What Modal gives a sandbox that asks for nothing: a core is billed by the
	// eighth at least, see https://modal.com/docs/guide/resources.
	defaultCores = 0.125
	defaultMiB   = 128
)

// perGPU are the prices of the types that are known; another one has none here.
func perGPU(kind string) (float64, bool) {
	p, ok := map[string]float64{
		"T4": 0.000164, "L4": 0.000222, "A10": 0.000306, "A10G": 0.000306, "L40S": 0.000542, "A100": 0.000583, "A100-40GB": 0.000583,
		"A100-80GB": 0.000694, "H100": 0.001097, "H100!": 0.001097, "H200": 0.001261, "B200": 0.001736,
		"RTX-PRO-6000": 0.000842,
	}[kind]
	return p, ok
}

// cost is what the sandbox costs while it runs; nil when it is not known.
func (w *want) cost() *protocol.Cost {
	cores, mib := w.params.CPU, w.params.MemoryMiB
	if cores == 0 {
		cores = defaultCores
	}
	if mib == 0 {
		mib = defaultMiB
	}
	second := cores*perCore + float64(mib)/1024*perGiB
	if w.params.GPU != "" {
		kind, number, _ := strings.Cut(w.params.GPU, ":")
		one, ok := perGPU(kind)
		n := 1
		if number != "" {
			var err error
			if n, err = strconv.Atoi(number); err != nil {
				return nil
			}
		}
		if !ok {
			return nil
		}
		second += float64(n) * one
	}
	return &protocol.Cost{PerHour: second * 3600, Currency: "USD", AsOf: pricesAsOf}
}
