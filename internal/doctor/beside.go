package doctor

// Line is a finding and where it was found: "" is everywhere that was looked
// at.
type Line struct {
	Where string
	Finding
}

// Beside puts the findings of places together: what two have in common once,
// what differs one below the other. Of one place, each line names it.
func Beside(places []*Place) []Line {
	var out []Line
	if len(places) == 0 {
		return nil
	}
	first := places[0]
	if len(places) == 1 {
		for _, f := range first.Findings {
			out = append(out, Line{first.Where, f})
		}
		return out
	}
	second := places[1]
	name := func(p *Place) string {
		if p.Where == "node" {
			return "node " + p.Host
		}
		return p.Where
	}
	groups := func(p *Place) (ids []string, of map[string][]Finding) {
		of = map[string][]Finding{}
		for _, f := range p.Findings {
			if of[f.ID] == nil {
				ids = append(ids, f.ID)
			}
			of[f.ID] = append(of[f.ID], f)
		}
		return ids, of
	}
	ids, a := groups(first)
	more, b := groups(second)
	for _, id := range more {
		if a[id] == nil {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		left, right := a[id], b[id]
		same := len(left) == len(right)
		for i := range left {
			same = same && left[i].Status == right[i].Status && left[i].Why == right[i].Why && left[i].Subject == right[i].Subject
		}
		if same {
			for _, f := range left {
				out = append(out, Line{"both", f})
			}
			continue
		}
		for _, f := range left {
			out = append(out, Line{name(first), f})
		}
		for _, f := range right {
			out = append(out, Line{name(second), f})
		}
	}
	return out
}
