package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"berth/jobs"
)

// Met is a cap that is met.
type Met struct {
	Cap    string // [jobs.CapUSD] and the others
	Reason string // with the figures
	Usage  jobs.Usage
}

// meter counts what is asked of models. What is under way counts as far as it has come.
type meter struct {
	caps   jobs.Caps
	prices jobs.Prices
	kept   *keeping // nil is nowhere

	mu  sync.Mutex
	all tally // of all that is asked
}

// tally is what is held to the caps. The lock is the meter's.
type tally struct {
	before jobs.Usage // of earlier brokers, for the caps alone
	stop   func(Met)  // nil is that the answers alone say that a cap is met

	used  jobs.Usage
	guess jobs.Usage // the part of used that answers have still to say: that they came, and what went in
	met   *Met
}

// Account is a part of what a broker is asked, for which the caps count by themselves: of one
// room of many. The zero value has counted nothing. It belongs to one broker.
type Account struct{ tally tally }

// flight is a request to a model that is under way.
type flight struct {
	m       *meter
	of      *tally
	price   *jobs.Price
	counted jobs.Usage
	guess   jobs.Usage // the part of counted that the answer has still to say
	input   int64      // tokens of it, estimated
	ended   bool
}

// each changes what counts a flight: what is held to the caps, and all together. The lock is held.
func (f *flight) each(change func(*tally)) {
	change(&f.m.all)
	if f.of != &f.m.all {
		change(f.of)
	}
}

// begin counts a request, unless a cap is met, or it may not be asked. While there are
// caps, the count is durable when it returns.
func (m *meter) begin(ctx context.Context, a *asked, of *tally) (*flight, error) {
	f := &flight{m: m, of: of, input: a.text / 4}
	for i, model := range a.models {
		p := m.prices.Of(model)
		switch {
		case model == "" || len(m.caps.Models) > 0 && !jobs.Named(m.caps.Models, model):
			return nil, &refusal{status: 403, why: fmt.Sprintf("the model %q is not one that the task may ask", model),
				hint: fmt.Sprintf("it may ask %v: [caps] models", m.caps.Models)}
		case p == nil && m.caps.USD > 0:
			return nil, &refusal{status: 403, why: fmt.Sprintf("max_usd cannot be measured: the model %q has no price", model),
				hint: fmt.Sprintf("add %q = {input = ..., output = ...} to [prices] of the configuration", model)}
		case i == 0 || f.price == nil || p != nil && p.Output > f.price.Output: // of several the dearest
			f.price = p
		}
	}
	if len(a.models) == 0 {
		return nil, &refusal{status: 400, why: "the request names no model"}
	}
	if err := m.mayUse(a); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.check(of, false)
	if of.met != nil {
		defer m.mu.Unlock()
		return nil, &refusal{status: 429, why: of.met.Reason, hint: "no request is carried any more"}
	}
	if which, _ := m.reached(of, of.used, false); which != "" {
		defer m.mu.Unlock()
		return nil, &refusal{status: 503, why: "the requests that are under way may take all that " + which + " leaves",
			hint: "ask again when one of them has its answer"}
	}
	f.each(func(t *tally) {
		t.used.Requests++
		t.guess.Requests++
		if f.price == nil {
			t.used.Unpriced++
		}
	})
	m.mu.Unlock()
	f.count(jobs.Usage{Input: f.input}, false)
	if err := m.keep(ctx); err != nil {
		f.end(jobs.Usage{}, false)
		return nil, err
	}
	return f, nil
}

// keep has a request wait until it is recorded that it was counted.
func (m *meter) keep(ctx context.Context) error {
	r := m.kept.begin(true)
	if !m.caps.Any() {
		return nil
	}
	err := r.wait(ctx)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &refusal{status: 503, why: "requests cannot be counted durably, so that the task's caps would not hold: nothing is sent",
		hint: "berth's state directory: " + err.Error()}
}

// mayUse refuses a request that names a tool which the task may not use.
func (m *meter) mayUse(a *asked) error {
	for _, tool := range a.tools {
		if !slices.Contains(m.caps.Tools, tool) {
			return &refusal{status: 403, why: "the request names the vendor's own tool " + tool +
				", which the task may not use: it works outside of the task's network",
				hint: fmt.Sprintf("turn it off in the program, or allow it: [caps] server_tools = [%q]", tool)}
		}
	}
	return nil
}

// count replaces what was counted of a flight; told is that its answer has said what
// went in, which is a guess until then.
func (f *flight) count(u jobs.Usage, told bool) {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.ended {
		return
	}
	if f.price != nil {
		u.USD = f.price.Cost(u)
	}
	var guess jobs.Usage
	if !told {
		guess.Input = u.Input
		if f.price != nil {
			guess.USD = f.price.Cost(guess)
		}
	}
	f.each(func(t *tally) {
		t.used.Input += u.Input - f.counted.Input
		t.used.CacheRead += u.CacheRead - f.counted.CacheRead
		t.used.CacheWrite += u.CacheWrite - f.counted.CacheWrite
		t.used.Output += u.Output - f.counted.Output
		t.used.USD = max(0, t.used.USD+u.USD-f.counted.USD)
		t.guess.Input += guess.Input - f.guess.Input
		t.guess.USD = max(0, t.guess.USD+guess.USD-f.guess.USD)
	})
	f.counted, f.guess = u, guess
}

// exceeds ends the task where what is used is above a cap.
func (f *flight) exceeds() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.check(f.of, true)
	return f.of.met != nil
}

// sure is what is used without guesses of tokens and dollars: the answer to a long prompt
// may say that nearly all of it came from the vendor's cache. The lock is held.
func (t *tally) sure() jobs.Usage {
	u := t.used
	u.Input -= t.guess.Input
	u.USD = max(0, u.USD-t.guess.USD)
	return u
}

// reached says which cap a usage reaches together with that of earlier brokers, and the
// figures. The lock is held.
func (m *meter) reached(t *tally, u jobs.Usage, over bool) (which, figures string) {
	u.Add(&t.before)
	which, figures = m.caps.Met(u, over)
	if which != "" && t.before != (jobs.Usage{}) {
		figures += jobs.WithEarlier
	}
	return which, figures
}

// check looks for a cap that is met, and says so once. A cap that ends a task is held to
// what is used without any guess: a request that has no answer yet may end without one, and
// the last one that is allowed has its answer before the end. The lock is held.
func (m *meter) check(t *tally, over bool) {
	if t.met != nil {
		return
	}
	u := t.sure()
	u.Requests -= t.guess.Requests
	which, figures := m.reached(t, u, over)
	if which == "" {
		return
	}
	u.Add(&t.before)
	t.met = &Met{Cap: which, Reason: figures, Usage: u}
	if t.stop != nil {
		go t.stop(*t.met) // it may ask this meter
	}
}

// end counts a flight for the last time. One that was not answered cost nothing.
func (f *flight) end(u jobs.Usage, answered bool) {
	if !answered {
		u = jobs.Usage{}
	}
	f.count(u, true)
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	f.each(func(t *tally) {
		t.guess.Requests--
		if !answered {
			t.used.Requests--
			if f.price == nil {
				t.used.Unpriced--
			}
		}
		t.used.Estimated = t.used.Estimated || u.Estimated
	})
	m.check(f.of, true)
	m.kept.begin(false)
}

func (m *meter) refused() {
	m.mu.Lock()
	m.all.used.Refused++
	m.mu.Unlock()
}

// told is what is used so far without guesses.
func (m *meter) told() jobs.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all.sure()
}

// usage is what is used so far, as far as it can be guessed.
func (m *meter) usage() jobs.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.all.used
	if u.USD > 0 {
		u.PricesOf = m.prices.Date
	}
	return u
}
