package look

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// Bounds of a report: of more tasks a part is drawn, spread over all.
const (
	mostDots       = 2000
	mostParallel   = 400
	mostParameters = 12
	mostAxes       = 8
	mostNames      = 20 // values of a parameter that has names
	progressBins   = 120
)

// Report is what a page says of a sweep.
type Report struct {
	Name, Short, Command, Made string
	Facts                      [][2]string
	Notes                      []string // what is not all
	Plots                      []*Plot
	Parameters                 []*Plot
	Parallel                   *Plot
	Metric                     string
	Failed                     int
	Groups                     []Group
}

// point is a task that is drawn.
type point struct {
	row    Row
	value  float64
	values map[string]string
}

// Report makes one. metric is the name of what is drawn against parameters: by default the
// first one that is a number, or seconds.
func (l *Look) Report(metric string, now time.Time) (*Report, error) {
	s := l.Sweep
	r := &Report{Name: s.Spec.Name, Short: jobs.Short(s.Spec.ID), Command: cutText(strings.Join(s.Spec.Words, " "), 2000),
		Made: now.UTC().Format("2006-01-02 15:04 UTC")}
	if err := l.totals(r, now); err != nil {
		return nil, err
	}
	fail, err := l.Failures()
	if err != nil {
		return nil, err
	}
	r.Failed, r.Groups = fail.Failed, fail.Groups[:min(len(fail.Groups), 50)]
	if len(fail.Groups) > 50 {
		r.Notes = append(r.Notes, fmt.Sprintf("Of %d groups of failures the largest 50 are shown.", len(fail.Groups)))
	}
	if fail.Looked < fail.Failed {
		r.Notes = append(r.Notes, fmt.Sprintf("The groups of failures are of %d of %d failed tasks, spread over all.", fail.Looked, fail.Failed))
	}
	done := l.States(append([]journal.State{journal.OK}, NotOK...)...)
	sample := spread(done, mostDots)
	if n := sample.Len(); n < done.Len() {
		r.Notes = append(r.Notes, fmt.Sprintf("Metrics and parameters are drawn for %d of %d tasks, spread over all.", n, done.Len()))
	}
	asked := metric != ""
	points, err := l.points(sample, &metric)
	if err != nil {
		return nil, err
	}
	if asked && len(points) == 0 && done.Len() > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("No task that has ended has a number %q: nothing is drawn against parameters.", metric))
	}
	r.Metric = metric
	r.parameters(points)
	return r, nil
}

// spread takes so many numbers at most: one of each stretch, by chance and yet always the
// same, as equal steps would meet a grid at one of its values.
func spread(n sweep.Numbers, most int) (out sweep.Numbers) {
	total := n.Len()
	if total <= most {
		return n
	}
	i, k, random := 0, 0, rand.New(rand.NewPCG(uint64(total), uint64(most)))
	next := 0
	n.Each(func(t int) {
		if i == k*total/most { // a stretch begins
			k++
			next = i + random.IntN(k*total/most-i)
		}
		if i == next {
			out.Add(t)
		}
		i++
	})
	return out
}

// totals reads all records: progress, distributions and cost.
func (l *Look) totals(r *Report, now time.Time) error {
	f := l.Fold
	began, ended := f.Times()
	cpu := 0.0 // hours
	minT, maxT, minM, maxM := math.Inf(1), 0.0, math.Inf(1), 0.0
	each := func(do func(rec *journal.Record, ok bool)) error {
		for t := 1; t <= f.Tasks(); t++ {
			if !f.State(uint32(t)).Result() {
				continue
			}
			_, rec, err := l.In.Record(f, uint32(t))
			if err != nil {
				return err
			}
			if rec != nil {
				do(rec, f.State(uint32(t)) == journal.OK)
			}
		}
		return nil
	}
	var done [2][progressBins]int
	span := ended.Sub(began)
	if err := each(func(rec *journal.Record, ok bool) {
		cpu += rec.CPU.Hours()
		minT, maxT = min(minT, max(rec.Took.Seconds(), 1e-4)), max(maxT, rec.Took.Seconds())
		minM, maxM = min(minM, max(float64(rec.Memory)/(1<<20), 0.1)), max(maxM, float64(rec.Memory)/(1<<20))
		k := 0
		if !ok {
			k = 1
		}
		i := 0
		if span > 0 {
			i = min(max(int(float64(rec.Began.Add(rec.Took).Sub(began))/float64(span)*progressBins), 0), progressBins-1)
		}
		done[k][i]++
	}); err != nil {
		return err
	}
	r.Facts = [][2]string{{"Tasks", fmt.Sprintf("%d of %d have a result", f.Done(), f.Wanted())}, {"Succeeded", strconv.Itoa(f.Count(journal.OK))}}
	for _, s := range append(slices.Clone(NotOK), journal.Running, journal.Waiting, journal.Withdrawn) {
		if n := f.Count(s); n > 0 {
			r.Facts = append(r.Facts, [2]string{strings.ToUpper(s.String()[:1]) + s.String()[1:], strconv.Itoa(n)})
		}
	}
	if f.Done() == 0 {
		return nil
	}
	workers, err := l.Sweep.CoreHours(now)
	if err != nil {
		return err
	}
	r.Facts = append(r.Facts, [2]string{"First start to last end", span.Round(time.Second).String()},
		[2]string{"Cost: time of all tasks, retried ones too", hours(f.Hours())}, [2]string{"Cost: CPU time of the results", hours(cpu)},
		[2]string{"Cost: core-hours of tasks", fmt.Sprintf("%.2f", f.CoreHours())},
		[2]string{"Cost: core-hours of workers", fmt.Sprintf("%.2f", workers)})
	models, err := l.Sweep.Models()
	if err != nil {
		r.Notes = append(r.Notes, "Not all that models were asked for is counted: "+err.Error())
	}
	if models != nil {
		r.Facts = append(r.Facts, [2]string{"Cost: models", models.String()})
	}
	if n := f.Tried(); n > 0 {
		r.Facts = append(r.Facts, [2]string{"Tried again after a failure", strconv.Itoa(n)})
	}
	r.Facts = append(r.Facts, [2]string{"Rounds", strconv.Itoa(f.Rounds())})
	r.Plots = append(r.Plots, progressPlot(done, span))
	times, memory := newHistogram(minT, maxT), newHistogram(minM, maxM)
	if err := each(func(rec *journal.Record, ok bool) {
		times.add(rec.Took.Seconds(), ok)
		memory.add(float64(rec.Memory)/(1<<20), ok)
	}); err != nil {
		return err
	}
	r.Plots = append(r.Plots, times.plot("Time of a task", "seconds"), memory.plot("Most memory of a task", "MiB"))
	return nil
}

func hours(h float64) string {
	if h > 1e6 { // a Duration would overflow soon
		return fmt.Sprintf("%.0f hours", h)
	}
	return fmt.Sprintf("%s (%.2f hours)", time.Duration(h*float64(time.Hour)).Round(time.Millisecond*100), h)
}

func progressPlot(done [2][progressBins]int, span time.Duration) *Plot {
	unit, name := time.Second, "seconds"
	switch {
	case span > 10*time.Hour:
		unit, name = time.Hour, "hours"
	case span > 10*time.Minute:
		unit, name = time.Minute, "minutes"
	}
	all := 0
	for i := range progressBins {
		all += done[0][i] + done[1][i]
	}
	p, x, y := newPlot("Progress", name+" since the first start", numeric([]float64{0, max(float64(span)/float64(unit), 1e-3)}),
		"tasks with a result", count(all))
	for k, class := range []string{"ok", "bad"} {
		sum, any := 0, false
		path := fmt.Sprintf("M%s %s", at(x.from), at(y.place(0)))
		for i := range progressBins {
			sum += done[k][i]
			any = any || done[k][i] > 0
			path += fmt.Sprintf("L%s %s", at(x.place(x.hi*float64(i+1)/progressBins)), at(y.place(float64(sum))))
		}
		if any {
			p.Strokes = append(p.Strokes, Stroke{path, class})
		}
	}
	return p
}

// points reads tasks with their parameters and metrics; metric "" becomes the one that is drawn.
func (l *Look) points(sample sweep.Numbers, metric *string) (points []point, err error) {
	c, err := NewCollector(l, "")
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	err = l.Rows(sample, func(r Row) error {
		p := point{row: r, values: map[string]string{}}
		rows, err := c.Values(r)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			for _, v := range rows[len(rows)-1] { // the last one is the newest
				p.values[v.Name] = v.Text()
				if _, ok := v.Number(); ok {
					numbers[v.Name]++
				}
			}
		}
		points = append(points, p)
		return nil
	})
	if *metric == "" {
		*metric = "seconds"
		most := 0
		for _, name := range slices.Sorted(maps.Keys(numbers)) {
			if numbers[name] > most {
				*metric, most = name, numbers[name]
			}
		}
	}
	kept := points[:0]
	for _, p := range points {
		v, ok := p.values[*metric]
		if !ok && *metric == "seconds" {
			v, ok = strconv.FormatFloat(p.row.Record.Took.Seconds(), 'f', -1, 64), true
		}
		n, err := strconv.ParseFloat(v, 64)
		if ok && err == nil && drawn(n) {
			p.value = n
			kept = append(kept, p)
		}
	}
	return kept, err
}

// parameters draws the metric against each parameter that varies, and all together.
func (r *Report) parameters(points []point) {
	texts := map[string]map[string]int{} // of each parameter
	for _, p := range points {
		for _, x := range p.row.Params {
			if texts[x.Name] == nil {
				texts[x.Name] = map[string]int{}
			}
			texts[x.Name][x.Text]++
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if len(texts[name]) > 1 {
			names = append(names, name)
		}
	}
	if len(names) > mostParameters {
		r.Notes = append(r.Notes, fmt.Sprintf("Of %d parameters that vary the first %d are drawn.", len(names), mostParameters))
		names = names[:mostParameters]
	}
	values := make([]float64, 0, len(points))
	for _, p := range points {
		values = append(values, p.value)
	}
	axes := map[string]axis{}
	for _, name := range names {
		a, ok := parameterAxis(texts[name])
		if !ok {
			r.Notes = append(r.Notes,
				fmt.Sprintf("The parameter %s has %d values, not all of them numbers that have a place in a picture, and is not drawn.",
					cutText(name, 40), len(texts[name])))
			continue
		}
		axes[name] = a
		xName, x, yName, y := name, a, r.Metric, numeric(values)
		if a.names != nil { // they are read in rows
			xName, x, yName, y = yName, y, xName, x
		}
		p, x, y := newPlot(name, xName, x, yName, y)
		for i, pt := range points {
			text, ok := paramOf(pt, name)
			if !ok {
				continue
			}
			tip := fmt.Sprintf("task %d: %s=%s, %s=%s", pt.row.Number, name, text, r.Metric, short(pt.value))
			w, h := x.of(text), y.place(pt.value)
			if y.names != nil {
				w, h = x.place(pt.value), y.of(text)+(float64(i*37%17)/16-0.5)*rowHeight*0.5 // beside each other
			}
			p.Dots = append(p.Dots, Dot{at(w), at(h), class(pt), tip})
		}
		r.Parameters = append(r.Parameters, p)
	}
	r.parallel(points, names, axes, values)
}

func class(p point) string {
	if p.row.State == journal.OK {
		return "ok"
	}
	return "bad"
}

func paramOf(p point, name string) (string, bool) {
	for _, x := range p.row.Params {
		if x.Name == name {
			return x.Text, true
		}
	}
	return "", false
}

// parameterAxis is one of numbers, if all are, or of a few names.
func parameterAxis(texts map[string]int) (axis, bool) {
	var numbers []float64
	for t := range texts {
		n, err := strconv.ParseFloat(t, 64)
		if err != nil || !drawn(n) {
			if len(texts) > mostNames {
				return axis{}, false
			}
			return axis{names: slices.Sorted(maps.Keys(texts))}, true
		}
		numbers = append(numbers, n)
	}
	return numeric(numbers), true
}

// of is the place of a parameter's text.
func (a axis) of(text string) float64 {
	if a.names != nil {
		return a.name(text)
	}
	n, _ := strconv.ParseFloat(text, 64)
	return a.place(n)
}

// parallel draws each task as a line through its parameters to the metric.
func (r *Report) parallel(points []point, names []string, axes map[string]axis, values []float64) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := axes[n]; return !ok })
	names = names[:min(len(names), mostAxes)]
	if len(names) < 2 || len(points) < 2 {
		return
	}
	step := (len(points) + mostParallel - 1) / mostParallel
	if step > 1 {
		r.Notes = append(r.Notes, fmt.Sprintf("The lines through all parameters are of every %dth of the tasks that are drawn.", step))
	}
	const left, apart, right, top, bottom = 46, 100, 62, 40, 300
	p := &Plot{Title: "All parameters", Width: left + apart*len(names) + right, Height: 324}
	place := func(i int) float64 { return float64(left + apart*i) }
	last := numeric(values)
	last.from, last.to = bottom, top
	for _, n := range names {
		a := axes[n]
		if a.from, a.to = bottom, top; a.names != nil {
			a.from, a.to = top, bottom
		}
		axes[n] = a
	}
	for i, n := range append(slices.Clone(names), r.Metric) {
		a := last
		if i < len(names) {
			a = axes[n]
		}
		p.Grid = append(p.Grid, Stroke{fmt.Sprintf("M%s %dV%d", at(place(i)), top, bottom), ""})
		p.label(place(i), 14, "middle", n, apart-12)
		if a.names == nil {
			p.label(place(i), top-8, "middle", short(a.hi), apart-12)
			p.label(place(i), bottom+16, "middle", short(a.lo), apart-12)
			continue
		}
		for _, m := range a.marks() { // mostNames of them have room above each other
			p.label(place(i)+5, m.at+4, "start", m.text, right-6)
		}
	}
	sorted := slices.Clone(values)
	slices.SortFunc(sorted, cmp.Compare)
	for k := 0; k < len(points); k += step {
		pt := points[k]
		path, sep := "", "M"
		for i, n := range names {
			text, ok := paramOf(pt, n)
			if !ok {
				path = ""
				break
			}
			path += fmt.Sprintf("%s%s %s", sep, at(place(i)), at(axes[n].of(text)))
			sep = "L"
		}
		if path == "" {
			continue
		}
		path += fmt.Sprintf("L%s %s", at(place(len(names))), at(last.place(pt.value)))
		rank, _ := slices.BinarySearch(sorted, pt.value)
		p.Strokes = append(p.Strokes, Stroke{path, fmt.Sprintf("q q%d", min(rank*5/len(sorted), 4))})
	}
	r.Parallel = p
}
