package define

import (
	"fmt"
	"strconv"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/sweep/command"
	"berth/internal/sys/pattern"
)

// Condition is one line of "where": comparisons (== != < <= > >=, in [a, b]) with
// and, or, not and parentheses, over parameters, numbers and strings in quotes.
// Two values that are both numbers are compared as numbers.
type Condition struct {
	text string
	eval func(row []Param) (string, error)
	uses []string
}

const yes, no = "true", "false"

func word(b bool) string {
	if b {
		return yes
	}
	return no
}

// Holds tells whether it is true of a row.
func (c Condition) Holds(row []Param) (bool, error) {
	v, err := c.eval(row)
	switch {
	case err != nil:
		return false, fmt.Errorf("where %q: %w", c.text, err)
	case v != yes && v != no:
		return false, fmt.Errorf("where %q: it is %q, neither true nor false", c.text, v)
	}
	return v == yes, nil
}

func (c Condition) known(names map[string]bool) error {
	for _, n := range c.uses {
		if !names[n] {
			return fmt.Errorf("%q is no parameter%s; text stands in quotes", n, strict.DidYouMean(n, keysOf(names)))
		}
	}
	return nil
}

var tokenForm = pattern.Lazy(`^\s*(?:([0-9.+-][0-9A-Za-z.+-]*)|([A-Za-z_][A-Za-z0-9_]*)|('[^']*'|"[^"]*")|(==|!=|<=|>=|<|>|\(|\)|\[|\]|,))`)

type token struct {
	kind byte // 'n' number, 'w' word, 's' string, 'o' sign, 0 the end
	text string
}

type parser struct {
	toks  []token
	uses  []string
	depth int
}

// ParseCondition reads one.
func ParseCondition(text string) (Condition, error) {
	p := &parser{}
	for rest := text; strings.TrimSpace(rest) != ""; {
		m := tokenForm().FindStringSubmatch(rest)
		if m == nil {
			return Condition{}, fmt.Errorf("%q: cannot read it from %q on", text, strings.TrimSpace(rest))
		}
		rest = rest[len(m[0]):]
		switch {
		case m[1] != "":
			if _, err := strconv.ParseFloat(m[1], 64); err != nil {
				return Condition{}, fmt.Errorf("%q: %q is no number", text, m[1])
			}
			p.toks = append(p.toks, token{'n', m[1]})
		case m[2] != "":
			p.toks = append(p.toks, token{'w', m[2]})
		case m[3] != "":
			p.toks = append(p.toks, token{'s', m[3][1 : len(m[3])-1]})
		default:
			p.toks = append(p.toks, token{'o', m[4]})
		}
	}
	f, err := p.or()
	if err == nil && len(p.toks) > 0 {
		err = fmt.Errorf("what is %q doing there?", p.toks[0].text)
	}
	if err != nil {
		return Condition{}, fmt.Errorf("%q: %w", text, err)
	}
	return Condition{text, f, p.uses}, nil
}

type evaluate = func(row []Param) (string, error)

func (p *parser) next() token {
	if len(p.toks) == 0 {
		return token{}
	}
	return p.toks[0]
}

// take steps over a word or a sign, if it is the next one.
func (p *parser) take(kind byte, text string) bool {
	if t := p.next(); t.kind != kind || t.text != text {
		return false
	}
	p.toks = p.toks[1:]
	return true
}

func (p *parser) or() (evaluate, error)  { return p.chain("or", yes, p.and) }
func (p *parser) and() (evaluate, error) { return p.chain("and", no, p.not) }

// chain reads a, a OP b, and so on; the first that is decisive is the answer.
func (p *parser) chain(op, decisive string, part func() (evaluate, error)) (evaluate, error) {
	f, err := part()
	for err == nil && p.take('w', op) {
		var g evaluate
		left := f
		g, err = part()
		f = func(row []Param) (string, error) {
			v, err := truth(left, row)
			if err != nil || v == decisive {
				return v, err
			}
			return truth(g, row)
		}
	}
	return f, err
}

func truth(f evaluate, row []Param) (string, error) {
	v, err := f(row)
	if err == nil && v != yes && v != no {
		err = fmt.Errorf("%q is neither true nor false", v)
	}
	return v, err
}

func (p *parser) not() (evaluate, error) {
	if p.depth++; p.depth > 100 {
		return nil, fmt.Errorf("it is nested too deeply")
	}
	defer func() { p.depth-- }()
	if !p.take('w', "not") {
		return p.comparison()
	}
	f, err := p.not()
	return func(row []Param) (string, error) {
		v, err := truth(f, row)
		return word(v == no), err
	}, err
}

func (p *parser) comparison() (evaluate, error) {
	a, err := p.term()
	if err != nil {
		return nil, err
	}
	if p.take('w', "in") {
		return p.in(a)
	}
	op := p.next().text
	if p.next().kind != 'o' || !strings.Contains(" == != < <= > >= ", " "+op+" ") {
		return a, nil
	}
	p.toks = p.toks[1:]
	b, err := p.term()
	return func(row []Param) (string, error) {
		x, err := a(row)
		if err != nil {
			return "", err
		}
		y, err := b(row)
		if err != nil {
			return "", err
		}
		return compare(x, op, y)
	}, err
}

func compare(x, op, y string) (string, error) {
	n, nerr := strconv.ParseFloat(x, 64)
	m, merr := strconv.ParseFloat(y, 64)
	numbers := nerr == nil && merr == nil
	switch {
	case op == "==" && numbers:
		return word(n == m), nil
	case op == "==":
		return word(x == y), nil
	case op == "!=" && numbers:
		return word(n != m), nil
	case op == "!=":
		return word(x != y), nil
	case !numbers:
		return "", fmt.Errorf("%q %s %q: these are not both numbers", x, op, y)
	case op == "<":
		return word(n < m), nil
	case op == "<=":
		return word(n <= m), nil
	case op == ">":
		return word(n > m), nil
	}
	return word(n >= m), nil
}

func (p *parser) in(a evaluate) (evaluate, error) {
	if !p.take('o', "[") {
		return nil, fmt.Errorf(`behind "in" there is a list: x in [1, 2]`)
	}
	var all []evaluate
	for !p.take('o', "]") {
		f, err := p.term()
		if err != nil {
			return nil, err
		}
		all = append(all, f)
		if !p.take('o', ",") && p.next().text != "]" {
			return nil, fmt.Errorf("a list has commas between its values and ends with ]")
		}
	}
	return func(row []Param) (string, error) {
		x, err := a(row)
		for _, f := range all {
			if err != nil {
				return "", err
			}
			var y string
			if y, err = f(row); err == nil {
				if same, _ := compare(x, "==", y); same == yes {
					return yes, nil
				}
			}
		}
		return no, err
	}, nil
}

func (p *parser) term() (evaluate, error) {
	t := p.next()
	if p.take('o', "(") {
		f, err := p.or()
		if err == nil && !p.take('o', ")") {
			err = fmt.Errorf("a parenthesis is not closed")
		}
		return f, err
	}
	switch {
	case t.kind == 0:
		return nil, fmt.Errorf("it ends where a value should stand")
	case t.kind == 'o' || t.kind == 'w' && (t.text == "and" || t.text == "or" || t.text == "in"):
		return nil, fmt.Errorf("%q stands where a value should", t.text)
	}
	p.toks = p.toks[1:]
	if t.kind != 'w' || t.text == yes || t.text == no {
		return func([]Param) (string, error) { return t.text, nil }, nil
	}
	p.uses = append(p.uses, t.text)
	return func(row []Param) (string, error) {
		v, ok := command.Find(row, t.text)
		if !ok {
			return "", fmt.Errorf("there is no parameter %q", t.text)
		}
		return v, nil
	}, nil
}
