package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
)

const envPrefix = "TERMINAL_"

// readEnv reads the variables of the table. An empty one is not set. A
// variable that looks like one of them and is none is an error; the many that
// others name after their terminals are not looked at.
func readEnv(environ []string) (map[string]Value, error) {
	out := map[string]Value{}
	rank := map[string]int{}
	var errs []error
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		k, nth := byEnv(name)
		if k == nil {
			if strings.HasPrefix(name, envPrefix) && text != "" {
				errs = append(errs, strange(name))
			}
			continue
		}
		if text == "" || k.Alien != "" && text == k.Alien || k.Alien != "" && strings.EqualFold(text, k.Alien) {
			continue
		}
		if at, ok := rank[k.Name]; ok && at < nth {
			continue
		}
		v, err := k.Parse(text, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if v != nil {
			out[k.Name], rank[k.Name] = Value{Key: k, V: v, Origin: Origin{Layer: layerEnv, Name: name}}, nth
		}
	}
	return out, together(errs)
}

// together makes one error of several, a line each.
func together(errs []error) error {
	var lines []string
	hint := ""
	kind := jobs.KindUsage
	for _, err := range errs {
		if err == nil {
			continue
		}
		if len(lines) == 0 {
			kind = jobs.KindOf(err)
		}
		if hint == "" {
			hint = jobs.HintOf(err)
		}
		lines = append(lines, err.Error())
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return &jobs.Error{Kind: kind, Msg: strings.Join(lines, "\n"), Hint: hint}
}

// byEnv returns the key that a variable stands for, and which of the key's
// variables it is.
func byEnv(name string) (*Key, int) {
	for i := range Keys() {
		for nth, e := range Keys()[i].Env {
			if e == name {
				return &Keys()[i], nth
			}
		}
	}
	return nil, 0
}

// strange tells what is wrong with a variable TERMINAL_* that is no key's, or
// nil when it most likely is another program's.
func strange(name string) error {
	word := strings.TrimPrefix(name, envPrefix)
	for _, p := range foreignPrefixes {
		if strings.HasPrefix(word, strings.ToUpper(p[0])) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the variable " + name + " is not supported: " + p[1], Hint: "unset " + name}
		}
	}
	var words []string
	for i := range Keys() {
		for _, e := range Keys()[i].Env {
			if w, ok := strings.CutPrefix(e, envPrefix); ok {
				words = append(words, w)
			}
		}
	}
	slips := 1
	if len(word) >= 8 {
		slips = 2
	}
	near := strict.Slip(word, words, slips)
	if near == "" {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown variable " + name + ": did you mean " + envPrefix + near + "?", Hint: "unset " + name}
}

// Parse reads a value from a text outside of any file: a variable, a flag, a
// word of the command line. Place is how errors call it.
func (k *Key) Parse(text, place string) (any, error) {
	if k.Refused != "" {
		if strings.EqualFold(text, k.Only) && k.Only != "" {
			return nil, nil
		}
		msg := place + " is not supported: " + k.Refused
		if k.Only != "" {
			msg = place + " must be " + k.Only + ", found " + strconv.Quote(text) + ": " + k.Refused
		}
		hint := ""
		if slices.Contains(k.Env, place) {
			hint = "unset " + place
		}
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: msg, Hint: hint}
	}
	flag := strict.Flag{Label: place, Table: k.table(), Key: k.leaf(), Kind: strict.String, Values: []string{text}}
	switch k.Type {
	case Bool:
		if b, ok := boolOf(text); ok {
			flag.Kind, flag.Values = strict.Bool, []string{strconv.FormatBool(b)}
		}
	case Count:
		flag.Kind = strict.Int
	case Size, Time, GPUs:
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			flag.Kind = strict.Int
		}
	case List, Pairs, Tables:
		list, err := words(text, k.Type == Pairs)
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: place + " " + err.Error()}
		}
		flag.Kind, flag.Values = strict.List, list
	case Text, Word, Path, Image, Dollars:
	}
	doc := strict.Flags([]strict.Flag{flag})
	t := doc.Root()
	if k.table() != "" {
		t = t.Table(k.table())
	}
	got := k.read(t)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return got, nil
}

func boolOf(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off":
		return false, true
	}
	return false, false
}

// words reads a list: JSON, as other programs write it into variables, or
// words between commas.
func words(text string, pairs bool) ([]string, error) {
	t := strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(t, "["):
		var list []string
		if err := json.Unmarshal([]byte(t), &list); err != nil {
			return nil, badList("is not a JSON list of strings")
		}
		return list, nil
	case pairs && strings.HasPrefix(t, "{"):
		var m map[string]string
		if err := json.Unmarshal([]byte(t), &m); err != nil {
			return nil, badList("is not a JSON object of strings")
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			list = append(list, name+"="+m[name])
		}
		return list, nil
	}
	var list []string
	for w := range strings.SplitSeq(t, ",") {
		if w = strings.TrimSpace(w); w != "" {
			list = append(list, w)
		}
	}
	return list, nil
}

type badList string

func (b badList) Error() string { return string(b) }
