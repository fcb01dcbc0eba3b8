package policy

import "slices"

// Refuses says why the policy, or one of its bounds, does not allow all that a rule of
// allow does; "" is that it allows all of it. It is certain where it says nothing: rules
// are compared one with one, so that what only several together allow counts as refused.
// What a deny refuses in part stays refused, and is no reason.
func (p *Policy) Refuses(r Rule) string {
	if why := p.refuses(&r); why != "" {
		return why
	}
	for i := range p.Bounds {
		if why := p.Bounds[i].Refuses(r); why != "" {
			return why
		}
	}
	return ""
}

func (p *Policy) refuses(r *Rule) string {
	for i := range p.Deny {
		if d := &p.Deny[i]; d.contains(r) &&
			(d.ports == nil || !slices.ContainsFunc(r.Ports(), func(port uint16) bool { return !d.hasPort(port, true) })) {
			return "it is denied by " + d.String()
		}
	}
	switch p.Mode {
	case Open:
		return ""
	case Learn, Allow:
	default:
		return "the network is off there"
	}
	for _, port := range r.Ports() {
		if p.Mode == Learn && r.name != "" && slices.Contains(LearnPorts(), port) {
			continue
		}
		if !slices.ContainsFunc(p.Allow, func(o Rule) bool { return o.hasPort(port, false) && o.contains(r) && o.opensAll(r) }) {
			one := Rule{name: r.name, below: r.below, net: r.net}
			if !isDefault(port) || r.ports != nil {
				one.ports = []uint16{port}
			}
			return "no rule allows all of " + one.String()
		}
	}
	return ""
}

// contains reports whether a rule is about every name or address that another one is about.
func (r *Rule) contains(o *Rule) bool {
	switch {
	case o.name == "":
		return r.name == "" && r.net.Bits() <= o.net.Bits() && r.net.Contains(o.net.Addr())
	case o.below:
		return r.below && (r.name == o.name || r.hasName(o.name))
	}
	return r.hasName(o.name)
}

// opensAll reports whether a rule lets through each class of addresses that another one
// within it does.
func (r *Rule) opensAll(o *Rule) bool {
	if o.name != "" {
		return true // addresses of names are opened by rules with the addresses
	}
	class := Forbidden(o.net.Addr())
	return class == "" || !o.opens(o.net.Addr(), class) || r.opens(o.net.Addr(), class)
}
