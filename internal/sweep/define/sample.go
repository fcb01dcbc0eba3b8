package define

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"berth/internal/config/strict"
)

// drawn is sample i of a parameter: one that depends on nothing else, so that more
// samples, or other parameters, change none.
func drawn(seed int64, name string, i int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "berth sample 1\x00%d\x00%s\x00%d", seed, name, i))
	return binary.BigEndian.Uint64(sum[:])
}

// fraction is it as a number from 0 to 1, without 1.
func fraction(n uint64) float64 { return float64(n>>11) / (1 << 53) }

// below is it as a whole number below n.
func below(d uint64, n int) int {
	hi, _ := bits.Mul64(d, uint64(n))
	return int(hi)
}

func (r *reader) sample(t *strict.Reader, seed int64) {
	if !t.Given() {
		return
	}
	t.Need("count", "100")
	count := t.Take("count").Count(MostTasks)
	type draw struct {
		name string
		text func(d uint64) string
	}
	var draws []draw
	for _, name := range t.Names() {
		v := t.Take(name)
		if name == "count" {
			continue
		}
		if f := distribution(v); f != nil && r.add(v, name) {
			draws = append(draws, draw{name, f})
		}
	}
	if count == 0 || len(draws) == 0 {
		return
	}
	r.s.factors = append(r.s.factors, factor{count, func(i int) []Param {
		row := make([]Param, len(draws))
		for k, d := range draws {
			row[k] = Param{Name: d.name, Text: d.text(drawn(seed, d.name, i))}
		}
		return row
	}})
}

// distribution reads { uniform = [a, b] } and its like.
func distribution(v strict.Value) func(d uint64) string {
	if !v.Is(strict.Table) {
		v.MustBe("a table such as { uniform = [0, 1] }")
		return nil
	}
	t := v.Table()
	uniform, logUniform, whole, choice := t.Take("uniform"), t.Take("log_uniform"), t.Take("int"), t.Take("choice")
	if len(t.Names()) != 1 {
		v.Failf("", "must have one of uniform, log_uniform, int and choice")
		return nil
	}
	switch {
	case choice.Given():
		all := values(choice)
		if len(all) == 0 {
			return nil
		}
		return func(d uint64) string { return all[below(d, len(all))] }
	case whole.Given():
		a, b, ok := bounds(whole)
		if !ok {
			return nil
		}
		if a != math.Trunc(a) || b != math.Trunc(b) || b-a > math.MaxInt32 {
			whole.Failf("", "must be two whole numbers")
			return nil
		}
		return func(d uint64) string { return strconv.Itoa(int(a) + below(d, int(b-a)+1)) }
	case logUniform.Given():
		a, b, ok := bounds(logUniform)
		if !ok {
			return nil
		}
		if a <= 0 {
			logUniform.Failf("", "must be above 0")
			return nil
		}
		return func(d uint64) string { return short(a * math.Pow(b/a, fraction(d))) }
	case uniform.Given():
		a, b, ok := bounds(uniform)
		if !ok {
			return nil
		}
		return func(d uint64) string { return short(a + (b-a)*fraction(d)) }
	}
	return nil
}

// short has six digits, as a person would write.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

func bounds(v strict.Value) (a, b float64, ok bool) {
	items := v.Items("two numbers")
	if len(items) != 2 {
		v.Failf("", "must be two numbers, the smaller one first")
		return 0, 0, false
	}
	var both [2]float64
	for i, x := range items {
		n, err := strconv.ParseFloat(x.Source(), 64)
		if err != nil || !x.Is(strict.Int) && !x.Is(strict.Number) || math.IsInf(n, 0) || math.IsNaN(n) {
			x.MustBe("a number")
			return 0, 0, false
		}
		both[i] = n
	}
	if both[0] >= both[1] {
		v.Failf("", "must be two numbers, the smaller one first")
		return 0, 0, false
	}
	return both[0], both[1], true
}
