package look

import (
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
)

// Bounds of a comparison.
const (
	mostPairs = 100_000 // that are compared by metrics; of more a part is, spread over all
	resamples = 2000
	mostFlips = 20
)

// Comparison is how a sweep differs from another one, in tasks with the same parameters.
type Comparison struct {
	Pairs, OnlyA, OnlyB int
	Looked              int      // pairs whose metrics were read
	Metrics             []Metric // that both have in some pair
	Broke, Fixed        []Flip   // tasks that were ok in A and are not in B, and the reverse
	BrokeN, FixedN      int
}

// Flip is a task whose outcome differs.
type Flip struct {
	A      int               `json:"a"` // numbers of the task
	B      int               `json:"b"`
	Params map[string]string `json:"params"`
	StateA string            `json:"state_a"`
	StateB string            `json:"state_b"`
}

// Metric is how pairs differ in a metric: B less A.
type Metric struct {
	Name   string  `json:"name"`
	Pairs  int     `json:"pairs"`
	MeanA  float64 `json:"mean_a"`
	MeanB  float64 `json:"mean_b"`
	Diff   float64 `json:"difference"` // mean of the differences
	Low    float64 `json:"low"`        // of the 95% confidence interval, by bootstrap
	High   float64 `json:"high"`
	Higher int     `json:"b_higher"`
	Lower  int     `json:"b_lower"`
	Equal  int     `json:"equal"`
}

// key is what pairs have in common: parameters and ordinal.
func key(r Row) (k [16]byte) {
	h := sha256.New()
	for _, p := range r.Params { // sorted by name
		h.Write(strconv.AppendInt(nil, int64(len(p.Name)), 10))
		h.Write([]byte(":" + p.Name))
		h.Write(strconv.AppendInt(nil, int64(len(p.Text)), 10))
		h.Write([]byte(":" + p.Text))
	}
	h.Write([]byte("#" + strconv.Itoa(r.Repeat)))
	copy(k[:], h.Sum(nil))
	return k
}

// Compare pairs the tasks of two sweeps by their parameters. names are the metrics, all by
// default. It is the same whenever it is asked.
func Compare(a, b *Look, names []string) (*Comparison, error) {
	ofA := make(map[[16]byte]int32, a.Fold.Tasks())
	if err := a.Sweep.Pick(a.wanted(), func(t command.Task) error { ofA[key(Row{Task: t})] = int32(t.Number); return nil }); err != nil {
		return nil, err
	}
	c := &Comparison{}
	pair := map[int]int{} // B's number to A's
	var pairs, both sweep.Numbers
	if err := b.Sweep.Pick(b.wanted(), func(t command.Task) error {
		k := key(Row{Task: t})
		n, ok := ofA[k]
		if !ok {
			c.OnlyB++
			return nil
		}
		delete(ofA, k)
		pair[t.Number] = int(n)
		pairs.Add(t.Number)
		sa, sb := a.Fold.State(uint32(n)), b.Fold.State(uint32(t.Number))
		if !sa.Result() || !sb.Result() {
			return nil
		}
		both.Add(t.Number)
		if (sa == journal.OK) == (sb == journal.OK) {
			return nil
		}
		list, count := &c.Broke, &c.BrokeN
		if sb == journal.OK {
			list, count = &c.Fixed, &c.FixedN
		}
		if *count++; len(*list) < mostFlips {
			f := Flip{int(n), t.Number, map[string]string{}, Word(sa), Word(sb)}
			for _, p := range t.Params {
				f.Params[p.Name] = p.Text
			}
			*list = append(*list, f)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	c.Pairs, c.OnlyA = pairs.Len(), len(ofA)
	return c, c.metrics(a, b, spread(both, mostPairs), pair, names)
}

func (l *Look) wanted() (n sweep.Numbers) {
	for t := 1; t <= l.Fold.Tasks(); t++ {
		if l.Fold.State(uint32(t)) != journal.Withdrawn {
			n.Add(t)
		}
	}
	return n
}

// metrics reads what both of each pair have found.
func (c *Comparison) metrics(a, b *Look, numbers sweep.Numbers, pair map[int]int, names []string) error {
	from := func(l *Look) (*Collector, error) { return NewCollector(l, l.Sweep.Spec.Collect) }
	ca, err := from(a)
	if err != nil {
		return err
	}
	defer ca.Close()
	cb, err := from(b)
	if err != nil {
		return err
	}
	defer cb.Close()
	all := map[string][][2]float64{}
	if err := b.Rows(numbers, func(rb Row) error {
		c.Looked++
		r, err := a.One(pair[rb.Number])
		if err != nil {
			return err
		}
		va, err := numbersOf(ca, r)
		if err != nil {
			return err
		}
		vb, err := numbersOf(cb, rb)
		if err != nil {
			return err
		}
		for name, x := range va {
			if y, ok := vb[name]; ok && (len(names) == 0 || slices.Contains(names, name)) && (all[name] != nil || len(all) < mostValues) {
				all[name] = append(all[name], [2]float64{x, y})
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range sortedKeys(all) {
		c.Metrics = append(c.Metrics, differ(name, all[name]))
	}
	return nil
}

// numbersOf are the metrics of a task that are numbers, and how long it took.
func numbersOf(c *Collector, r Row) (map[string]float64, error) {
	rows, err := c.Values(r)
	out := map[string]float64{"seconds": r.Record.Took.Seconds()}
	if len(rows) > 0 {
		for _, v := range rows[len(rows)-1] {
			if n, ok := v.Number(); ok && !math.IsNaN(n) && !math.IsInf(n, 0) {
				out[v.Name] = n
			}
		}
	}
	return out, err
}

// differ is the mean difference of pairs, with a 95% interval by percentile bootstrap: the
// mean of as many differences, drawn with putting back, 2,000 times.
func differ(name string, pairs [][2]float64) Metric {
	m := Metric{Name: name, Pairs: len(pairs)}
	diffs := make([]float64, len(pairs))
	for i, p := range pairs {
		m.MeanA += p[0] / float64(len(pairs))
		m.MeanB += p[1] / float64(len(pairs))
		diffs[i] = p[1] - p[0]
		switch {
		case diffs[i] > 0:
			m.Higher++
		case diffs[i] < 0:
			m.Lower++
		default:
			m.Equal++
		}
	}
	m.Diff = mean(diffs)
	random := rand.New(rand.NewPCG(1, uint64(len(pairs))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range diffs {
			sum += diffs[random.IntN(len(diffs))]
		}
		means[i] = sum / float64(len(diffs))
	}
	slices.Sort(means)
	m.Low, m.High = means[resamples*25/1000], means[resamples*975/1000-1]
	return m
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
