package cli

import (
	"testing"
	"time"

	"berth/backends/external"
	"berth/backends/external/protocol"
)

func TestCostText(t *testing.T) {
	opened := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		hour, stopped float64
		since         time.Duration // it was opened; 0 is that it does not run
		want          string
	}{
		{0.5, 0.01, 90 * time.Minute, "0.5 USD an hour while it runs, about 0.75 since it was opened; 0.01 an hour while it is stopped (prices of 2026-08-01)"},
		{0.5, 0.01, 0, "0.5 USD an hour while it runs; 0.01 an hour while it is stopped (prices of 2026-08-01)"},
		{0.047232, 0.000013, time.Second, "0.04723 USD an hour while it runs, less than 0.01 since it was opened; 0.000013 an hour while it is stopped (prices of 2026-08-01)"},
		{1234.5, 0, 1000 * time.Hour, "1234 USD an hour while it runs, about 1234500.00 since it was opened (prices of 2026-08-01)"},
		{0, 0, time.Hour, "0 USD an hour while it runs, less than 0.01 since it was opened (prices of 2026-08-01)"},
	} {
		m := external.Made{Opened: opened, Cost: &protocol.Cost{PerHour: c.hour, Currency: "USD", StoppedPerHour: c.stopped, AsOf: "2026-08-01"}}
		if got := costText(m, c.since != 0, opened.Add(c.since)); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
