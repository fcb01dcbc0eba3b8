package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// Modes.
const (
	Open  = "open"  // what the machine reaches
	Allow = "allow" // what Policy.Allow names
	None  = "none"  // nothing
	// Learn is every name on the ports of LearnPorts, and the addresses that rules name.
	Learn = "learn"
)

// LearnPorts are the ports on which names are allowed in the mode Learn.
func LearnPorts() []uint16 {
	return []uint16{21, 22, 25, 80, 443, 587, 993, 3306, 5432, 6379, 8080, 8443, 9418, 27017}
}

// A Policy is what one party allows, and the bounds that others set. It is not
// changed after it was made: see With.
type Policy struct {
	Mode   string // one of the above; any other allows nothing
	Allow  []Rule
	Deny   []Rule
	Opaque []Rule // connections whose first bytes are not looked at
	Origin string // who says so, for people
	Bounds []Policy
}

// With is the policy with more rules.
func (p *Policy) With(rules ...Rule) *Policy {
	more := *p
	more.Allow = append(slices.Clone(p.Allow), rules...)
	return &more
}

// A Request is what a program inside wants.
type Request struct {
	Name string     // "" for an address that was asked for as such
	Addr netip.Addr // the address, or what the name was resolved to; not valid before that
	Port uint16
	// Proto is "tcp" or "", which is the same; nothing else is allowed.
	Proto string
	// ServerName is that of TLS, or the host of an HTTP request, when it is known.
	ServerName string
	// Own are the addresses of this machine's interfaces.
	Own []netip.Addr
}

// A Decision is the answer.
type Decision struct {
	Allow  bool
	Rule   string // the word that decided, "" where none matched
	Origin string // of the policy that decided
	Hint   string // of a refusal: why, and what would allow it
	Word   string // of a refusal: the rule that would allow it, "" where none of the policy's own would
	// Opaque says that all policies allow it without a look at its first bytes.
	Opaque bool
	// Opened says that a rule with the address itself opens one that is refused otherwise.
	Opened bool
	// NoWay is not this package's: it would be allowed, and there is no way out at the moment.
	NoWay bool
}

// Decide judges a request. Without an address it judges the name; who has resolved
// the name asks again for each address.
func (p *Policy) Decide(q Request) Decision {
	if hint := q.normalise(); hint != "" {
		return Decision{Origin: p.Origin, Hint: hint}
	}
	return p.within(&q, false)
}

// normalise says what is wrong with a request that no policy could allow.
func (q *Request) normalise() string {
	var fault string
	q.Addr = q.Addr.Unmap().WithZone("")
	switch {
	case q.Proto != "" && q.Proto != "tcp":
		return "only TCP leaves"
	case q.Port == 0:
		return "port 0 is no port"
	case q.Name != "":
		if q.Name, fault = normalise(q.Name); fault != "" {
			return fault
		}
	case !q.Addr.IsValid():
		return "it has neither a name nor an address"
	}
	if q.ServerName == "" {
		return ""
	}
	name, fault := normalise(q.ServerName)
	switch {
	case fault != "":
		return "the server name: " + fault
	case q.Name != "" && name != q.Name:
		return "the connection to " + q.Name + " asks for the server " + name
	}
	q.ServerName = name
	return ""
}

// within judges by the policy and all of its bounds. A bound's refusal is told
// before the policy's own, because a rule more would not help against it.
func (p *Policy) within(q *Request, bound bool) Decision {
	d := p.alone(q, bound)
	for i := range p.Bounds {
		b := p.Bounds[i].within(q, true)
		if !b.Allow {
			b.Word = ""
			return b
		}
		d.Opaque = d.Opaque && b.Opaque
	}
	return d
}

// alone judges without bounds. As a bound the mode open refuses what its deny names
// and nothing else.
func (p *Policy) alone(q *Request, bound bool) Decision {
	d := Decision{Origin: p.Origin}
	if p.Mode == None {
		d.Hint = "the network is off here"
		return d
	}
	for i := range p.Deny {
		if r := &p.Deny[i]; r.denies(q) {
			d.Rule, d.Hint = r.String(), "it is denied by "+r.String()
			d.from(r)
			return d
		}
	}
	switch r := p.allows(q); {
	case p.Mode == Open || p.Mode == Learn && q.Name != "" && slices.Contains(LearnPorts(), q.Port):
		d.Rule = p.Mode
	case r != nil && (p.Mode == Allow || p.Mode == Learn):
		d.Rule = r.String()
		d.from(r)
	default:
		d.Word = Word(q.Name, q.Addr, q.Port)
		d.Hint = p.missing(q, d.Word)
		return d
	}
	if c := class(q.Addr, q.Own); q.Addr.IsValid() && c != "" && (p.Mode != Open || !bound) {
		r := p.opener(q, c)
		if r == nil {
			d.Rule, d.Origin, d.Word = "", p.Origin, Word("", q.Addr, q.Port)
			d.Hint = refusedClass(q, c, d.Word)
			return d
		}
		d.Rule, d.Opened = r.String(), true
		d.from(r)
	}
	d.Allow = true
	d.Opaque = p.Mode == Open && bound || slices.ContainsFunc(p.Opaque, func(r Rule) bool { return r.allows(q) })
	return d
}

func (d *Decision) from(r *Rule) {
	if r.From != "" {
		d.Origin = r.From
	}
}

// allows finds a rule for the name, or for the address that was asked for as such.
func (p *Policy) allows(q *Request) *Rule {
	for i := range p.Allow {
		if p.Allow[i].allows(q) {
			return &p.Allow[i]
		}
	}
	return nil
}

func (r *Rule) allows(q *Request) bool {
	if !r.hasPort(q.Port, false) {
		return false
	}
	if q.Name != "" {
		return r.hasName(q.Name)
	}
	return r.hasAddr(q.Addr)
}

// denies looks at all that is known: both names, the address and those inside of it.
func (r *Rule) denies(q *Request) bool {
	return r.hasPort(q.Port, true) &&
		(r.hasName(q.Name) || r.hasName(q.ServerName) || r.hasAddr(q.Addr) || slices.ContainsFunc(embedded(q.Addr), r.hasAddr))
}

// opener finds the rule with the address itself.
func (p *Policy) opener(q *Request, class string) *Rule {
	for i := range p.Allow {
		if r := &p.Allow[i]; r.hasPort(q.Port, false) && r.opens(q.Addr, class) {
			return r
		}
	}
	return nil
}

// missing is the hint where no rule matches.
func (p *Policy) missing(q *Request, word string) string {
	for i := range p.Allow {
		r := &p.Allow[i]
		switch {
		case r.hasName(q.Name) || q.Name == "" && r.hasAddr(q.Addr):
			return r.String() + " is about other ports; the rule " + word + " would allow it"
		case r.below && r.name == q.Name:
			return r.String() + " does not stand for " + q.Name + " itself; the rule " + word + " would allow it"
		}
	}
	return "no rule allows it; the rule " + word + " would"
}

func refusedClass(q *Request, class, word string) string {
	rule := "the rule " + word + " would allow it"
	if q.Name == "" {
		return "the address is refused (" + class + "); " + rule
	}
	return q.Name + " has the address " + q.Addr.String() + ", which is refused (" + class + "); " + rule
}

// Ports are those on which a name is allowed, sorted. Nil is a name that does not
// exist for whoever asks.
func (p *Policy) Ports(name string) []uint16 {
	name, ok := Normalise(name)
	if !ok {
		return nil
	}
	var out []uint16
	if p.Mode == Learn {
		out = LearnPorts()
	}
	for i := range p.Allow {
		if p.Allow[i].hasName(name) {
			out = append(out, p.Allow[i].Ports()...)
		}
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(port uint16) bool { return !p.Decide(Request{Name: name, Port: port}).Allow })
	if len(out) == 0 {
		return nil
	}
	return out
}

// Literals are the addresses and networks that rules name, for which there have to
// be routes inside. Those of loopback are not among them: inside, it is another one.
func (p *Policy) Literals() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range p.Allow {
		if p.literal(&r) && !slices.Contains(out, r.net) {
			out = append(out, r.net)
		}
	}
	return out
}

// LiteralPorts are the ports of one of them, sorted.
func (p *Policy) LiteralPorts(of netip.Prefix) []uint16 {
	var out []uint16
	for _, r := range p.Allow {
		if p.literal(&r) && r.net == of {
			out = append(out, r.Ports()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *Policy) literal(r *Rule) bool {
	return r.name == "" && !r.net.Addr().IsLoopback() && (p.Mode == Allow || p.Mode == Learn)
}

// Words is the form of a policy in records.
type Words struct {
	Mode   string   `json:"mode"`
	Allow  []string `json:"allow,omitempty"`
	Deny   []string `json:"deny,omitempty"`
	Opaque []string `json:"opaque,omitempty"`
	Origin string   `json:"origin,omitempty"`
}

// Compile makes a policy of its words and those of its bounds. An error is a
// *[WordError] with the list in it.
func Compile(w Words, bounds ...Words) (*Policy, error) {
	p := &Policy{Mode: w.Mode, Origin: w.Origin}
	if !slices.Contains([]string{Open, Allow, None, Learn}, w.Mode) {
		return nil, &WordError{List: "mode", Word: w.Mode, Why: "it is none of " + strings.Join([]string{Open, Allow, None}, ", ")}
	}
	for _, list := range []struct {
		name  string
		words []string
		to    *[]Rule
	}{{"allow", w.Allow, &p.Allow}, {"deny", w.Deny, &p.Deny}, {"opaque", w.Opaque, &p.Opaque}} {
		for _, word := range list.words {
			rules, err := parse(word, list.name == "deny")
			if e, ok := err.(*WordError); ok { //nolint:errorlint // parse returns no other
				e.List = list.name
				return nil, e
			}
			*list.to = append(*list.to, rules...)
		}
	}
	for _, b := range bounds {
		bound, err := Compile(b)
		if err != nil {
			return nil, err
		}
		p.Bounds = append(p.Bounds, *bound)
	}
	return p, nil
}
