package look

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"berth/internal/sweep/journal"
)

// Pairs are found by parameters; the interval holds the true difference, and is the same
// each time.
func TestCompare(t *testing.T) {
	var a, b []did
	for n := range 50 {
		p := map[string]string{"x": fmt.Sprint(n), "y": "1"}
		loss := float64(n)
		d := did{params: p, state: journal.OK, took: time.Second, metrics: fmt.Sprintf("loss=%g\n", loss)}
		e := did{params: p, state: journal.OK, took: 2 * time.Second, metrics: fmt.Sprintf("loss=%g\nother=1\n", loss-1+0.1*float64(n%3-1))}
		switch n {
		case 3:
			e.state = journal.Failed
		case 4:
			d.state = journal.TimedOut
		case 5:
			e.state = journal.Waiting
		}
		a = append(a, d)
		b = append([]did{e}, b...) // in another order
	}
	a = append(a, did{params: map[string]string{"x": "a"}, state: journal.OK})
	la, lb := ran(t, a...), ran(t, b...)
	c, err := Compare(la, lb, nil)
	must(t, err)
	if c.Pairs != 50 || c.OnlyA != 1 || c.OnlyB != 0 || c.Looked != 49 || len(c.Metrics) != 2 {
		t.Fatalf("%+v", c)
	}
	m := c.Metrics[0]
	if m.Name != "loss" || m.Pairs != 49 || m.Lower != 49 || math.Abs(m.Diff+1) > 0.01 || m.Low > m.Diff || m.High < m.Diff || m.High-m.Low > 0.1 || m.High == m.Low {
		t.Errorf("%+v", m)
	}
	if s := c.Metrics[1]; s.Name != "seconds" || s.Diff != 1 || s.Low != 1 || s.High != 1 || s.Higher != 49 {
		t.Errorf("%+v", s)
	}
	if c.BrokeN != 1 || c.Broke[0].A != 4 || c.Broke[0].B != 47 || c.FixedN != 1 || c.Fixed[0].Params["x"] != "4" || c.Fixed[0].StateA != "timeout" {
		t.Errorf("%+v %+v", c.Broke, c.Fixed)
	}
	again, err := Compare(la, lb, []string{"loss"})
	must(t, err)
	if len(again.Metrics) != 1 || !reflect.DeepEqual(again.Metrics[0], m) {
		t.Errorf("%+v", again.Metrics)
	}
}
