package config

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/config/strict"
	"berth/internal/network/credentials"
	"berth/jobs"
)

// readCredentials reads [credentials.NAME]: a ready-made one of that name, or of the
// name that "like" says, or one of one's own.
func (f *file) readCredentials(t *strict.Reader) {
	f.credentials = map[string]*jobs.Credential{}
	ready := credentials.Ready()
	for _, name := range t.Names() {
		v := t.Take(name)
		if !v.Is(strict.Table) {
			v.MustBe("a table: [credentials." + name + "]")
			continue
		}
		f.credentials[name] = readCredential(name, v, t.Table(name), ready)
	}
}

func readCredential(name string, v strict.Value, r *strict.Reader, ready map[string]jobs.Credential) *jobs.Credential {
	r.Synonyms("from", "key", "value", "secret", "token")
	r.Synonyms("upstream", "url", "base_url")
	c, known := ready[name]
	if like := r.Take("like"); like.Given() {
		c, known = ready[like.OneOf(slices.Sorted(maps.Keys(ready))...)]
	}
	c.Name = name
	parts := map[string]strict.Value{"name": v}
	text := func(key string, to *string) {
		if parts[key] = r.Take(key); parts[key].Given() {
			*to = parts[key].Text()
		}
	}
	texts := func(key string, to *[]string) {
		if parts[key] = r.Take(key); parts[key].Is(strict.String) {
			*to = []string{parts[key].Text()}
		} else if parts[key].Given() {
			*to = parts[key].Texts("strings")
		}
	}
	text("from", &c.From)
	text("upstream", &c.Upstream)
	text("header", &c.Header)
	text("user", &c.User)
	if ca := r.Take("ca"); ca.Given() {
		c.CAFile = ca.Path()
	}
	if bearer := r.Take("bearer"); bearer.Given() {
		if !bearer.Bool() || r.Take("header").Given() {
			bearer.Failf("leave it out, and name the header", "is true, or there is a header")
		}
		c.Header, c.User = "", ""
	}
	texts("base_url_env", &c.BaseURLEnv)
	texts("key_env", &c.KeyEnv)
	texts("methods", &c.Methods)
	texts("paths", &c.Paths)
	if parts["header"].Given() && !parts["user"].Given() {
		c.User = ""
	}
	if part := checkFrom(c.From); part != "" {
		at := parts["from"]
		if !at.Given() {
			at = v
		}
		at.Failf(`such as from = "env:ANTHROPIC_API_KEY", "file:~/.keys/anthropic" or "command:pass show anthropic"`, "%s", part)
		return &c
	}
	if part, err := credentials.Check(c); err != nil {
		at, have := parts[part]
		switch {
		case have && at.Given():
			at.Failf("", "must be another one: %v", err)
		case !known:
			v.Failf("it is no ready-made one ("+strings.Join(slices.Sorted(maps.Keys(ready)), ", ")+
				`): name like = "...", or all of upstream, methods and paths`,
				"needs %s: %v", part, err)
		default:
			v.Failf("", "needs %s: %v", part, err)
		}
	}
	return &c
}

// checkFrom says what is wrong with the place of a key; "" is nothing.
func checkFrom(from string) string {
	kind, rest, _ := strings.Cut(from, ":")
	switch {
	case from == "":
		return "needs from: where its key is"
	case kind != "env" && kind != "file" && kind != "command":
		return "must begin with env:, file: or command:, and hold no key itself"
	case rest == "":
		return fmt.Sprintf("has nothing behind %s:", kind)
	case kind == "file" && !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "~/"):
		return "must name a file by its full path, or with ~/"
	}
	return ""
}

// readCA reads the certificates that a credential's server is trusted by.
func readCA(c *jobs.Credential) error {
	if c.CAFile == "" {
		return nil
	}
	b, err := strict.ReadFile(c.CAFile, "file of certificates")
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(b) {
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: c.CAFile + " has no certificate in PEM in it",
			Hint: "ca of [credentials." + c.Name + "]: an authority's, as in /etc/ssl/certs"}
	}
	c.CA = string(b)
	return err
}

// readPrices reads [prices]: a date, and models.
func (f *file) readPrices(t *strict.Reader) {
	if date := t.Take("date"); date.Given() {
		f.prices.Date = date.Source()
		if _, err := time.Parse(time.DateOnly, f.prices.Date); err != nil {
			date.Failf("", `must be the day on which you looked, such as "2026-11-26"`)
		}
	}
	for _, name := range t.Names() {
		v := t.Take(name)
		if name == "date" {
			continue
		}
		if !v.Is(strict.Table) {
			v.MustBe("a table such as {input = 3, output = 15}: US dollars for a million tokens")
			continue
		}
		r := t.Table(name)
		p := jobs.Price{Model: name}
		r.Need("input", "3.0")
		r.Need("output", "15.0")
		for key, to := range map[string]*float64{"input": &p.Input, "output": &p.Output, "cache_read": &p.CacheRead, "cache_write": &p.CacheWrite} {
			if n := r.Take(key); n.Given() {
				var err error
				if *to, err = strconv.ParseFloat(n.Source(), 64); err != nil ||
					*to < 0 || *to > 1e5 || !n.Is(strict.Int) && !n.Is(strict.Number) {
					n.Failf("", "must be an amount of US dollars for a million tokens, such as 3 or 0.25")
				}
			}
		}
		f.prices.Models = append(f.prices.Models, p)
	}
	if len(f.prices.Models) > 0 && f.prices.Date == "" {
		t.Need("date", `"2026-11-26"`)
	}
}

// Credentials are those of the user's configuration, by name.
func (c *Config) Credentials() []jobs.Credential {
	var out []jobs.Credential
	if c.user != nil {
		for _, name := range slices.Sorted(maps.Keys(c.user.credentials)) {
			out = append(out, *c.user.credentials[name])
		}
	}
	return out
}

// credentials settles those that a task names, with its caps and its network.
func (c *Config) credentials(t *jobs.Task) error {
	model, err := c.named(&t.Place)
	if err != nil {
		return err
	}
	if err := c.bounded(t, model); err != nil {
		return err
	}
	// An agent can send away what it reads: without a word on its network it reaches the
	// servers of its credentials alone, where that can be held.
	held := t.Agent != nil && !t.Can().Bare && t.Resources.Tasks <= 1
	if (held || len(t.Credentials) > 0) && c.opens(t.Network) {
		t.Network.Mode, t.Network.Allow = jobs.NetworkAllow, []string{}
	}
	return nil
}

// named settles the credentials of which a place has names, and the prices of models;
// model is that one of them is for a model.
func (c *Config) named(p *jobs.Place) (model bool, err error) {
	have := c.Credentials()
	var list []jobs.Credential
	for _, named := range p.Credentials {
		i := slices.IndexFunc(have, func(o jobs.Credential) bool { return o.Name == named.Name })
		if i < 0 {
			e := &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no credential %s in %s", literal(named.Name), c.userPath()),
				Hint: fmt.Sprintf(`add [credentials.%s] with from = "env:NAME", "file:PATH" or "command:LINE"`, named.Name)}
			if _, ready := credentials.Ready()[named.Name]; !ready && len(have) > 0 {
				e.Hint = "there are " + strings.Join(jobs.CredentialNames(have), ", ")
			}
			return false, e
		}
		list = append(list, have[i])
		model = model || have[i].Model()
	}
	for i := range list {
		if err := readCA(&list[i]); err != nil {
			return false, err
		}
	}
	p.Credentials = list
	if model && c.user != nil {
		p.Prices = c.user.prices
	}
	return model, nil
}

// opens reports whether nothing is said of the mode of a network.
func (c *Config) opens(n jobs.Network) bool {
	return n.Said().Mode == "" && c.said("network.mode").V == nil
}

// lent settles the credentials that an environment is to have: a broker holds it to its
// caps, and has the configuration's bounds of requests to models where it has none.
func (c *Config) lent(o *jobs.EnvOptions) error {
	b := c.bounds()
	if err := c.above(&o.Caps, &b); err != nil {
		return err
	}
	profile, err := c.ReadProfile()
	if err != nil {
		return err
	}
	if err := profile.Bounds(&o.Caps); err != nil {
		return err
	}
	if len(o.Credentials) == 0 {
		return nil
	}
	model, err := c.named(&o.Place)
	if err != nil {
		return err
	}
	b = b.Within(profile.Caps)
	o.Configured.For = func(backend string) (jobs.EnvOptions, []string, error) {
		d, notes, err := c.forBackend(backend)
		if model {
			d.Caps = jobs.Caps{Requests: b.Requests, Tokens: b.Tokens, USD: b.USD}
		}
		if err == nil && c.opens(d.Network) {
			d.Network.Mode, d.Network.Allow = jobs.NetworkAllow, []string{}
		}
		return d, notes, err
	}
	return nil
}

// bounds are the caps of the configuration.
func (c *Config) bounds() jobs.Caps {
	of := func(name string) Value { return c.said("caps." + name) }
	return jobs.Caps{Requests: get[int](of(jobs.CapRequests)), Tokens: get[int](of(jobs.CapTokens)), USD: get[jobs.USD](of(jobs.CapUSD)),
		Turns: get[int](of(jobs.CapTurns)),
		Wall:  get[time.Duration](of(jobs.CapWall)), Idle: get[time.Duration](of(jobs.CapIdle)), Output: get[jobs.Bytes](of(jobs.CapOutput))}
}

// bounded holds a task's caps to those of the configuration, and gives them to an agent or
// a task with a model that says nothing; of turns see [Config.agent].
func (c *Config) bounded(t *jobs.Task, model bool) error {
	b := c.bounds()
	if err := c.above(&t.Caps, &b); err != nil {
		return err
	}
	b = b.Within(c.profile.Caps)
	if (model || t.Agent != nil) && t.Resources.Tasks <= 1 { // of ranks none is watched
		t.Caps.Under(&b, model, false)
	}
	return nil
}

// above refuses caps that are above the bounds of the configuration.
func (c *Config) above(caps, bounds *jobs.Caps) error {
	name, asked, _ := caps.Above(bounds)
	if name == "" {
		return nil
	}
	v := c.said("caps." + name)
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s %s is above the bound %s of %s", name, asked, v, v.Origin),
		Hint: "ask for less, or raise it there"}
}
