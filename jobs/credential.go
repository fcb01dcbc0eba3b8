package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Credential is a key that a task uses and never sees: its requests go to a broker
// outside of the container, which puts the key into the one header of the one
// upstream. It holds no key.
type Credential struct {
	Name string `json:"name"`
	// API is how requests are read, [APIAnthropic] and the others; "" is that their
	// bodies are not.
	API string `json:"api,omitempty"`
	// Upstream is the address of the server, with the path that all requests begin
	// with: "https://api.openai.com/v1". It has no slash at its end.
	Upstream string `json:"upstream"`
	// Header has the key alone; "" is Authorization, as a bearer token, or with User
	// as a password.
	Header string `json:"header,omitempty"`
	User   string `json:"user,omitempty"`
	// BaseURLEnv and KeyEnv are the variables in which programs inside look for the
	// server's address and for a key.
	BaseURLEnv []string `json:"base_url_env,omitempty"`
	KeyEnv     []string `json:"key_env,omitempty"`
	// Methods and Paths are what may be asked for. A path is one below the upstream:
	// "*" in it is one part, "**" at its end all that follows.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// CA are certificates in PEM that are trusted beside those of the machine.
	CA string `json:"ca,omitempty"`
	// CAFile is where the client has them from. It is not recorded.
	CAFile string `json:"-"`
	// From is where the client has the key from: "env:NAME", "file:PATH" or
	// "command:LINE". It is not recorded.
	From string `json:"-"`
}

// What a credential's requests are.
const (
	APIAnthropic = "anthropic" // messages
	APIOpenAI    = "openai"    // chat completions, responses, completions, embeddings
	APIGemini    = "gemini"    // generateContent and streamGenerateContent
	APIGit       = "git"       // fetches over https; pushes are refused
)

// APIs are all of them.
var APIs = []string{APIAnthropic, APIOpenAI, APIGemini, APIGit}

// Model reports whether its requests are to a model, so that caps count them.
func (c *Credential) Model() bool { return c.API != "" && c.API != APIGit }

// CredentialNames are the names of a list.
func CredentialNames(list []Credential) []string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.Name
	}
	return out
}

// Caps end a task that has asked models for more; zero fields are no cap.
type Caps struct {
	Requests int `json:"max_requests,omitempty"`
	// Tokens are those that went in, from caches too, and those that came out.
	Tokens int `json:"max_tokens,omitempty"`
	USD    USD `json:"max_usd,omitempty"`
	// Models are the ones that may be asked, with "*" at the end for what begins so;
	// none is all. Tools are those of a vendor's own tools that a request may name.
	Models []string `json:"models,omitempty"`
	Tools  []string `json:"server_tools,omitempty"`
	// Turns are answers of the model in the main conversation, by the agent's own events.
	Turns int `json:"max_turns,omitempty"`
	// Wall is from the command's begin, Idle since it last wrote or asked, and Output what
	// it writes: these the runner measures itself.
	Wall   time.Duration `json:"max_wall_ns,omitempty"`
	Idle   time.Duration `json:"max_idle_ns,omitempty"`
	Output Bytes         `json:"max_output_bytes,omitempty"`
}

// Any reports whether one ends the task that counts requests to models.
func (c *Caps) Any() bool { return c.Requests > 0 || c.Tokens > 0 || c.USD > 0 }

// OfCommand names the first cap that holds a command, or the agent that it is, and not
// what a broker carries; "" is none.
func (c *Caps) OfCommand() string {
	switch {
	case c.Turns > 0:
		return CapTurns
	case c.Wall > 0:
		return CapWall
	case c.Idle > 0:
		return CapIdle
	case c.Output > 0:
		return CapOutput
	}
	return ""
}

// USD is an amount of US dollars.
type USD float64

// maxUSD is above what a task is meant to cost.
const maxUSD = 1e6

// ParseUSD reads an amount such as "5" or "0.50".
func ParseUSD(s string) (USD, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.Trim(s, "0123456789.") != "" || n <= 0 || n > maxUSD {
		return 0, fmt.Errorf("%q is not an amount of US dollars: write for example 5 or 0.50", s)
	}
	return USD(n), nil
}

// String has cents; less than one it has the first two digits.
func (u USD) String() string {
	if u > 0 && u < 0.01 {
		return strconv.FormatFloat(float64(u), 'g', 2, 64)
	}
	return strconv.FormatFloat(float64(u), 'f', 2, 64)
}

// Prices are the user's own table of what models cost.
type Prices struct {
	Date   string  `json:"date,omitempty"` // YYYY-MM-DD, when the user looked
	Models []Price `json:"models,omitempty"`
}

// Price is of one model, in US dollars for a million tokens.
type Price struct {
	Model      string  `json:"model"` // with "*" at the end for what begins so
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`  // 0 is Input
	CacheWrite float64 `json:"cache_write,omitempty"` // 0 is twice Input: no vendor asks for more
}

// Of is the price of a model, or nil: its own, else that of the longest beginning.
func (p *Prices) Of(model string) *Price {
	var found *Price
	for i := range p.Models {
		m := &p.Models[i]
		if m.Model == model {
			return m
		}
		if Named([]string{m.Model}, model) && (found == nil || len(m.Model) > len(found.Model)) {
			found = m
		}
	}
	return found
}

// Named reports whether a name is one of a list, in which "*" at the end of a word
// is whatever follows.
func Named(list []string, name string) bool {
	return slices.ContainsFunc(list, func(w string) bool {
		begin, open := strings.CutSuffix(w, "*")
		return w == name || open && strings.HasPrefix(name, begin)
	})
}

// Cost is what a usage costs.
func (p *Price) Cost(u Usage) USD {
	read, write := p.CacheRead, p.CacheWrite
	if read == 0 {
		read = p.Input
	}
	if write == 0 {
		write = 2 * p.Input
	}
	return USD((float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*read + float64(u.CacheWrite)*write) / 1e6)
}

// Usage is what an attempt has asked of models.
type Usage struct {
	Requests   int    `json:"requests"`              // that were answered, or are being answered
	Refused    int    `json:"refused,omitempty"`     // by the broker
	Input      int64  `json:"input_tokens"`          // without what came from a cache, or went into one
	CacheRead  int64  `json:"cache_read,omitempty"`  // tokens
	CacheWrite int64  `json:"cache_write,omitempty"` // tokens
	Output     int64  `json:"output_tokens"`         //
	USD        USD    `json:"usd,omitempty"`         // 0 where a model has no price
	Unpriced   int    `json:"unpriced,omitempty"`    // requests to models without one
	Estimated  bool   `json:"estimated,omitempty"`   // some answers did not say what they used
	PricesOf   string `json:"prices_of,omitempty"`   // the date of the table
}

// Add adds another one.
func (u *Usage) Add(o *Usage) {
	u.Requests += o.Requests
	u.Refused += o.Refused
	u.Input += o.Input
	u.CacheRead += o.CacheRead
	u.CacheWrite += o.CacheWrite
	u.Output += o.Output
	u.USD += o.USD
	u.Unpriced += o.Unpriced
	u.Estimated = u.Estimated || o.Estimated
	u.PricesOf = cmp.Or(o.PricesOf, u.PricesOf)
}

// Tokens are all of them.
func (u Usage) Tokens() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// String says it in one line: "41 requests, 120k tokens, 5.02 USD".
func (u Usage) String() string {
	s := Plural(u.Requests, "request") + ", " + roughly(u.Tokens()) + " tokens"
	if u.USD > 0 {
		s += ", " + u.USD.String() + " USD"
	}
	if u.Estimated {
		s += " (in part estimated)"
	}
	return s
}

// Plural is a number of things in words: 1 job, 2 jobs.
func Plural[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(int64(n), 10) + " " + what + "s"
}

// roughly writes a number of tokens: 950, 120k, 3.4M.
func roughly(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return strconv.FormatInt(n/1000, 10) + "k"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
}

// The names of caps, as they stand in task files.
const (
	CapRequests = "max_requests"
	CapTokens   = "max_tokens"
	CapUSD      = "max_usd"
	CapTurns    = "max_turns"
	CapWall     = "max_wall"
	CapIdle     = "max_idle"
	CapOutput   = "max_output"
)

// WithEarlier is said behind the figures of a cap that earlier attempts have had a part of.
const WithEarlier = ", with what earlier attempts of the job have used"

// Met says which cap a usage has reached, and the figures; "" is none. With over it is
// one that is exceeded.
func (c *Caps) Met(u Usage, over bool) (which, figures string) {
	reached := func(have, most float64) bool { return most > 0 && (have > most || !over && have == most) }
	rest := ""
	switch {
	case reached(float64(u.Requests), float64(c.Requests)):
		which = CapRequests
		rest = fmt.Sprintf("%d of %d requests, %s tokens", u.Requests, c.Requests, roughly(u.Tokens()))
	case reached(float64(u.Tokens()), float64(c.Tokens)):
		which = CapTokens
		rest = fmt.Sprintf("%d of %d tokens, %s", u.Tokens(), c.Tokens, Plural(u.Requests, "request"))
	case reached(float64(u.USD), float64(c.USD)):
		which = CapUSD
		rest = fmt.Sprintf("%s of %s USD, %s, %s tokens", u.USD, c.USD, Plural(u.Requests, "request"), roughly(u.Tokens()))
	default:
		return "", ""
	}
	if u.USD > 0 && which != CapUSD {
		rest += ", " + u.USD.String() + " USD"
	}
	if u.Estimated {
		rest += " (in part estimated)"
	}
	return which, "cap " + which + " met: " + rest
}

// Above names the first cap that is above a bound, with both figures; "" is none.
func (c *Caps) Above(b *Caps) (name, asked, most string) {
	for _, one := range []struct {
		name        string
		asked, most float64
		show        func(*Caps) string
	}{
		{CapRequests, float64(c.Requests), float64(b.Requests), func(c *Caps) string { return strconv.Itoa(c.Requests) }},
		{CapTokens, float64(c.Tokens), float64(b.Tokens), func(c *Caps) string { return strconv.Itoa(c.Tokens) }},
		{CapUSD, float64(c.USD), float64(b.USD), func(c *Caps) string { return c.USD.String() }},
		{CapTurns, float64(c.Turns), float64(b.Turns), func(c *Caps) string { return strconv.Itoa(c.Turns) }},
		{CapWall, float64(c.Wall), float64(b.Wall), func(c *Caps) string { return c.Wall.String() }},
		{CapIdle, float64(c.Idle), float64(b.Idle), func(c *Caps) string { return c.Idle.String() }},
		{CapOutput, float64(c.Output), float64(b.Output), func(c *Caps) string { return c.Output.String() }},
	} {
		if one.most > 0 && one.asked > one.most {
			return one.name, one.show(c), one.show(b)
		}
	}
	return "", "", ""
}

// Bounds refuses caps that are above those of the profile.
func (p *Profile) Bounds(c *Caps) error {
	name, asked, most := c.Above(&p.Caps)
	if name == "" {
		return nil
	}
	return &Error{Kind: KindUsage, Msg: fmt.Sprintf("%s %s is above the bound %s of the profile %s", name, asked, most, p.Name),
		Hint: "ask for less, or name another --profile"}
}

// Within are bounds that other ones narrow: of two figures the smaller one.
func (c Caps) Within(b Caps) Caps {
	c.Requests, c.Tokens, c.USD, c.Turns =
		narrower(c.Requests, b.Requests), narrower(c.Tokens, b.Tokens), narrower(c.USD, b.USD), narrower(c.Turns, b.Turns)
	c.Wall, c.Idle, c.Output = narrower(c.Wall, b.Wall), narrower(c.Idle, b.Idle), narrower(c.Output, b.Output)
	return c
}

// narrower is the smaller one of two bounds, of which 0 is none.
func narrower[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// Under gives bounds to what says nothing, of an agent or a task with a model: model is
// that a broker counts its requests, turns that events tell them.
func (c *Caps) Under(b *Caps, model, turns bool) {
	if model {
		c.Requests, c.Tokens, c.USD = cmp.Or(c.Requests, b.Requests), cmp.Or(c.Tokens, b.Tokens), cmp.Or(c.USD, b.USD)
	}
	if turns {
		c.Turns = cmp.Or(c.Turns, b.Turns)
	}
	c.Wall, c.Idle, c.Output = cmp.Or(c.Wall, b.Wall), cmp.Or(c.Idle, b.Idle), cmp.Or(c.Output, b.Output)
}

// Measurable is the error of caps that could not be measured: by the broker of a
// credential for a model, else by the events of the agent, which may be nil.
func (c *Caps) Measurable(list []Credential, prices Prices, agent *Agent) error {
	broker := slices.ContainsFunc(list, func(o Credential) bool { return o.Model() })
	var tells Tells
	if agent != nil {
		tells = agent.Tells
	}
	switch unseen := c.unseen(tells); {
	case c.Turns > 0 && tells.Turns != TellsEach:
		return &Error{Kind: KindConfig, Msg: CapTurns + " cannot be measured: " + agent.silent("turns"),
			Hint: "count requests instead, with a credential: " + CapRequests + "; or bound its time: " + CapWall}
	case !broker && len(unseen) > 0 && agent != nil:
		return &Error{Kind: KindConfig, Msg: unseen[0] + " cannot be measured: no credential of the task is for a model, and " + agent.silent("it"),
			Hint: `name one: credentials = ["anthropic"]`}
	case !broker && len(unseen) > 0:
		return &Error{Kind: KindConfig, Msg: "[caps] counts requests to models, and no credential of the task is for one",
			Hint: `name one: credentials = ["anthropic"]; requests with a key that the task has itself cannot be counted`}
	}
	if c.USD == 0 || !broker && tells.USD == TellsEach {
		return nil
	}
	if len(prices.Models) == 0 {
		return &Error{Kind: KindConfig, Msg: "max_usd cannot be measured: the configuration has no prices",
			Hint: `add [prices], such as "claude-sonnet-4*" = {input = 3, output = 15}`}
	}
	models := c.Models
	if !broker {
		if models = []string{agent.Model}; agent.Model == "" {
			return &Error{Kind: KindConfig,
				Msg:  "max_usd cannot be measured: no credential of the task is for a model, and it names no model whose price would count",
				Hint: `name one: model in [agent], or credentials = ["anthropic"]`}
		}
	}
	for _, m := range models {
		if name, open := strings.CutSuffix(m, "*"); prices.Of(name) == nil && !(open && slices.ContainsFunc(prices.Models, func(p Price) bool {
			return strings.HasPrefix(p.Model, name)
		})) {
			return &Error{Kind: KindConfig, Msg: "max_usd cannot be measured: [prices] has none for the model " + m,
				Hint: fmt.Sprintf("add %q = {input = ..., output = ...} to [prices] of the configuration", m)}
		}
	}
	return nil
}

// unseen are the caps that a broker alone can measure, with these events.
func (c *Caps) unseen(tells Tells) (out []string) {
	for _, one := range []struct {
		name string
		on   bool
	}{
		{CapRequests, c.Requests > 0},
		{CapTokens, c.Tokens > 0 && tells.Tokens != TellsEach},
		{CapUSD, c.USD > 0 && tells.USD != TellsEach && tells.Tokens != TellsEach},
		{"models", len(c.Models) > 0},
		{"server_tools", len(c.Tools) > 0},
	} {
		if one.on {
			out = append(out, one.name)
		}
	}
	return out
}

// silent says why the events of an agent do not measure something.
func (a *Agent) silent(what string) string {
	if a == nil {
		return "nothing is known of what the command writes"
	}
	return "the events of " + a.Name + " do not tell " + what + " as they come"
}

// ByEvents are the caps that the agent's own events alone measure: a task that lies is
// not held by them.
func (c *Caps) ByEvents(list []Credential) (out []string) {
	broker := slices.ContainsFunc(list, func(o Credential) bool { return o.Model() })
	if c.Turns > 0 {
		out = append(out, CapTurns)
	}
	if c.Tokens > 0 && !broker {
		out = append(out, CapTokens)
	}
	if c.USD > 0 && !broker {
		out = append(out, CapUSD)
	}
	return out
}
