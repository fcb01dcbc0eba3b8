package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Options are those of a backend that is a program, for requests that are about
// no environment. What is wrong with them is said where one is made.
func (c *Config) Options(backend string) map[string]string {
	_, options, _ := c.options(backend)
	return options
}

// options are the image and the options of a backend that is a program.
func (c *Config) options(backend string) (image string, options map[string]string, err error) {
	set := func(name, value string) {
		if value != "" {
			if options == nil {
				options = map[string]string{}
			}
			options[name] = value
		}
	}
	if v := c.on(backend, "terminal.modal_mode"); v.V == "managed" {
		return "", nil, &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("terminal.modal_mode = managed (%s): berth reaches Modal itself, "+
				"with your own key, and not through a gateway", v.Origin),
			Hint: "berth config set terminal.modal_mode direct"}
	}
	image = cmp.Or(shown(c.on(backend, "terminal.modal_image").V), shown(c.on(backend, "terminal.daytona_image").V))
	for _, name := range []string{"api_url", "workspace_template", "per_task_workspace"} {
		set(name, shown(c.on(backend, "terminal.daytona."+name).V))
	}
	for _, kv := range get[[]string](c.said("terminal.external")) {
		name, value, _ := strings.Cut(kv, "=")
		if option, ok := strings.CutPrefix(name, backend+"."); ok {
			set(option, value)
		}
	}
	return image, options, nil
}

// Keys are the variables that the configuration's files have for the program of
// a backend, a secret among them, beside those that are set: what every request
// needs, also one that is about no environment. A key goes to no other service
// than the one that stands beside it.
func (c *Config) Keys() (out []string) {
	for _, k := range []struct{ key, name string }{{"terminal.daytona.api_token", "DAYTONA_API_KEY"}, {"terminal.daytona.api_url", "DAYTONA_API_URL"}} {
		if _, set := c.lookupEnv(k.name); set {
			continue
		}
		if v := c.said(k.key); v.V != nil {
			out = append(out, k.name+"="+get[string](v))
		}
	}
	return out
}

// tables reads a table of tables of strings, or a list of "NAME.OPTION=VALUE".
func tables(v strict.Value) (any, bool) {
	if v.Is(strict.List) {
		out := []string{}
		for _, item := range v.Items(`"NAME.OPTION=VALUE"`) {
			s := item.Text()
			key, _, ok := strings.Cut(s, "=")
			name, option, dotted := strings.Cut(key, ".")
			if !ok || !dotted || option == "" || !jobs.IsProgram(name) {
				item.Failf("", `must be "NAME.OPTION=VALUE", with NAME a backend that is a program, found %q`, s)
				return nil, false
			}
			if _, value, _ := strings.Cut(s, "="); isKey(item, name, option, value) {
				return nil, false
			}
			out = append(out, s)
		}
		slices.Sort(out)
		return out, true
	}
	if !v.Is(strict.Table) {
		v.MustBe("a table: [terminal.external.NAME]")
		return nil, false
	}
	out := []string{}
	top := v.Table()
	for _, name := range top.Names() {
		item := top.Take(name)
		if !item.Is(strict.Table) {
			item.MustBe("a table: [terminal.external." + name + "]")
			return nil, false
		}
		if !jobs.IsProgram(name) {
			item.Failf("", "is not the name of a backend that is a program: lower-case letters, digits and dashes")
			return nil, false
		}
		t := top.Table(name)
		for _, option := range t.Names() {
			o := t.Take(option)
			if strings.ContainsAny(option, "=") {
				o.Failf("", "has a name that holds a =")
				return nil, false
			}
			s := o.Text()
			if s == "" || isKey(o, name, option, s) {
				return nil, false
			}
			out = append(out, name+"."+option+"="+s)
		}
	}
	slices.Sort(out)
	return out, true
}

// isKey complains about an option that looks like a key: options are recorded
// with each environment and job. ${NAME} is the program's to look up.
func isKey(v strict.Value, program, option, value string) bool {
	if !secrets.Value(value) && (!secrets.Name(option) || strings.HasPrefix(value, "${")) {
		return false
	}
	v.Failf("export it: variables that begin with "+strings.ToUpper(strings.ReplaceAll(program, "-", "_"))+"_ reach the program",
		"looks like a secret, and options are recorded with every environment")
	return true
}
