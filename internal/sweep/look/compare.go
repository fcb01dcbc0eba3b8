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
func key(t command.Task) (k [16]byte) {
	h := sha256.New()
	for _, p := range t.Params { // sorted by name
		h.Write(strconv.AppendInt(nil, int64(len(p.Name)), 10))
		h.Write([]byte(":" + p.Name))
		h.Write(strconv.AppendInt(nil, int64(len(p.Text)), 10))
		h.Write([]byte(":" + p.Text))
	}
	h.Write([]byte("#" + strconv.Itoa(t.Repeat)))
	copy(k[:], h.Sum(nil))
	return k
}

// Side is one of the sweeps that are compared: a [Look], or what [ReadSide] has of one on another machine.
type Side interface {
	// wanted gives its tasks but those that are withdrawn, by their numbers.
	wanted(each func(command.Task, journal.State) error) error
	finder() (finder, error)
}

// finder reads the metrics of tasks with a result that are numbers, and how long each took.
type finder interface {
	each(numbers sweep.Numbers, each func(task int, metrics map[string]float64) error) error
	one(task int) (map[string]float64, error)
	close()
}

// Compare pairs the tasks of two sweeps by their parameters. names are the metrics, all by
// default. It is the same whenever it is asked, and wherever the sweeps are.
func Compare(a, b Side, names []string) (*Comparison, error) {
	type ofTask struct {
		number int32
		state  journal.State
	}
	ofA := map[[16]byte]ofTask{}
	if err := a.wanted(func(t command.Task, s journal.State) error {
		ofA[key(t)] = ofTask{int32(t.Number), s}
		return nil
	}); err != nil {
		return nil, err
	}
	c := &Comparison{}
	pair := map[int]int{} // B's number to A's
	var pairs, both sweep.Numbers
	if err := b.wanted(func(t command.Task, sb journal.State) error {
		k := key(t)
		of, ok := ofA[k]
		if !ok {
			c.OnlyB++
			return nil
		}
		delete(ofA, k)
		n, sa := int(of.number), of.state
		pair[t.Number] = n
		pairs.Add(t.Number)
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
			f := Flip{n, t.Number, map[string]string{}, Word(sa), Word(sb)}
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

func (l *Look) notWithdrawn() (n sweep.Numbers) {
	for t := 1; t <= l.Fold.Tasks(); t++ {
		if l.Fold.State(uint32(t)) != journal.Withdrawn {
			n.Add(t)
		}
	}
	return n
}

func (l *Look) wanted(each func(command.Task, journal.State) error) error {
	return l.Sweep.Pick(l.notWithdrawn(), func(t command.Task) error { return each(t, l.Fold.State(uint32(t.Number))) })
}

func (l *Look) finder() (finder, error) {
	c, err := NewCollector(l, l.Sweep.Spec.Collect)
	return lookFinder{l, c, l.Sweep.TaskReader()}, err
}

// lookFinder reads journals, and files of tasks.
type lookFinder struct {
	l     *Look
	c     *Collector
	tasks *sweep.TaskReader
}

func (f lookFinder) each(numbers sweep.Numbers, each func(int, map[string]float64) error) error {
	return f.l.Rows(numbers, func(r Row) error {
		values, err := numbersOf(f.c, r)
		if err != nil {
			return err
		}
		return each(r.Number, values)
	})
}

func (f lookFinder) one(task int) (map[string]float64, error) {
	t, err := f.tasks.Task(task)
	if err != nil {
		return nil, err
	}
	r, err := f.l.Row(t)
	if err != nil {
		return nil, err
	}
	return numbersOf(f.c, r)
}

func (f lookFinder) close() {
	f.c.Close()
	f.tasks.Close()
}

// metrics reads what both of each pair have found.
func (c *Comparison) metrics(a, b Side, numbers sweep.Numbers, pair map[int]int, names []string) error {
	ofA, err := a.finder()
	if err != nil {
		return err
	}
	defer ofA.close()
	ofB, err := b.finder()
	if err != nil {
		return err
	}
	defer ofB.close()
	all := map[string][][2]float64{}
	if err := ofB.each(numbers, func(task int, vb map[string]float64) error {
		c.Looked++
		va, err := ofA.one(pair[task])
		if err != nil {
			return err
		}
		for _, name := range sortedKeys(va) { // so that it is the same ones where there are too many
			x := va[name]
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

// mostNumber bounds what is compared: sums and differences of many are numbers, too.
const mostNumber = 1e300

// numbersOf are the metrics of a task that are numbers, and how long it took.
func numbersOf(c *Collector, r Row) (map[string]float64, error) {
	rows, err := c.Values(r)
	out := map[string]float64{"seconds": r.Record.Took.Seconds()}
	if len(rows) > 0 {
		for _, v := range rows[len(rows)-1] {
			if n, ok := v.Number(); ok && math.Abs(n) <= mostNumber { // NaN is not
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
