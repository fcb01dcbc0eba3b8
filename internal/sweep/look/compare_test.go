package look

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth/internal/sweep/journal"
	"berth/jobs"
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
	// Read on another machine, each side or both, it is the same.
	for _, sides := range [][2]Side{{there(t, la), lb}, {la, there(t, lb)}, {there(t, la), there(t, lb)}} {
		far, err := Compare(sides[0], sides[1], nil)
		must(t, err)
		if !reflect.DeepEqual(far, c) {
			t.Errorf("%+v\nis not\n%+v", far, c)
		}
	}
}

// What a task prints is no reason for a comparison not to be told: of numbers that are too large
// the differences would be none.
func TestCompareHuge(t *testing.T) {
	of := func(metrics string) *Look {
		return ran(t, did{params: map[string]string{"x": "1"}, state: journal.OK, took: time.Second, metrics: metrics})
	}
	c, err := Compare(of("loss=1.7e308\nacc=1e300\nnone=NaN\n"), of("loss=-1.7e308\nacc=-1e300\nnone=1\n"), nil)
	must(t, err)
	if _, err := json.Marshal(c); err != nil || len(c.Metrics) != 2 || c.Metrics[0].Name != "acc" || c.Metrics[0].Diff != -2e300 {
		t.Errorf("%v: %+v", err, c)
	}
}

// Of more metrics than are compared it is the same ones each time.
func TestCompareMany(t *testing.T) {
	metrics := ""
	for n := range mostValues {
		metrics += fmt.Sprintf("m%03d=1\n", n)
	}
	l := ran(t, did{params: map[string]string{"x": "1"}, state: journal.OK, took: time.Second, metrics: metrics})
	for range 20 {
		c, err := Compare(l, l, nil)
		must(t, err)
		if n := len(c.Metrics); n != mostValues || c.Metrics[0].Name != "m000" || c.Metrics[n-1].Name != "m199" {
			t.Fatalf("%d: %+v", n, c.Metrics[n-1])
		}
	}
}

func written(t *testing.T, l *Look) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, l.WriteSide(&b))
	return b.Bytes()
}

func there(t *testing.T, l *Look) *There {
	t.Helper()
	side, err := ReadSide(bytes.NewReader(written(t, l)), "hpc", l.Sweep.Spec.ID)
	must(t, err)
	return side
}

// An answer that is cut short, or says what cannot be, is an error that names the machine, never
// a comparison of a part.
func TestWrongSide(t *testing.T) {
	l := ran(t, did{params: map[string]string{"x": "1"}, state: journal.OK}, did{params: map[string]string{"x": "<\n\""}, state: journal.Waiting},
		did{params: map[string]string{"x": "3"}, state: journal.Failed})
	whole := written(t, l)
	id := l.Sweep.Spec.ID
	compare := func(b []byte, id string) error {
		side, err := ReadSide(bytes.NewReader(b), "hpc", id)
		if err != nil {
			return err
		}
		c, err := Compare(l, side, nil)
		if err == nil && (c.Pairs != 3 || c.OnlyA+c.OnlyB != 0 || c.Looked != 2) {
			t.Errorf("%+v", c)
		}
		return err
	}
	must(t, compare(whole, id))
	change := func(old, now string) []byte {
		b := bytes.Replace(whole, []byte(old), []byte(now), 1)
		if bytes.Equal(b, whole) {
			t.Fatalf("%s is not in %s", old, whole)
		}
		return b
	}
	for n := range len(whole) {
		if err := compare(whole[:n], id); err == nil {
			t.Errorf("%d bytes of %d are taken", n, len(whole))
		}
	}
	for name, err := range map[string]error{
		"another sweep":  compare(whole, "0"),
		"a number twice": compare(change(`{"task":2`, `{"task":1`), id),
		"no number":      compare(change(`{"task":1`, `{"task":0`), id),
		"a large number": compare(change(`{"task":3`, `{"task":4294967297`), id),
		"no state":       compare(change(`"state":3`, `"state":77`), id),
		"withdrawn":      compare(change(`"state":3`, `"state":8`), id),
		"a long line":    compare(change(`"3"`, `"`+strings.Repeat("3", mostSideLine)+`"`), id),
	} {
		if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "hpc gave an answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
