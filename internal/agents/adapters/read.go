package adapters

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/agents"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/network/policy"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Bounds of an adapter.
const (
	maxFiles = 16
	maxFile  = 32 << 10
)

// value is what becomes the value of an option.
const value = "{}"

var (
	programForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	versionForm = pattern.Lazy(`^[0-9][0-9A-Za-z.+-]{0,31}$`)
)

// read reads the keys, over those of the built-in one that it begins with.
func read(r *strict.Reader) *Adapter {
	r.Synonyms("program", "command", "cmd", "binary", "exec")
	r.Synonyms("args", "argv", "arguments", "flags")
	r.Synonyms("events", "decoder", "format", "output")
	r.Synonyms("exit", "exit_map", "codes")
	r.Synonyms("needs", "requires", "dependencies")
	r.Synonyms("hosts", "network", "allow")
	r.Synonyms("tells", "caps", "measures")
	r.Refuse("is the task's to say: model in [agent]", "model")
	a := &Adapter{Prompt: PromptStdin, Events: agents.FormatNone, Options: map[string][]string{}, Exit: map[string]string{}, Home: map[string]string{}}
	if like := r.Take("like"); like.Given() {
		if base := like.OneOf(shelf.Names()...); base != "" {
			if b, err := ready(base); err != nil || b == nil {
				like.Failf("", "is not available")
			} else {
				a = b
				a.Like = base
			}
		}
	}
	text(r.Take("description"), &a.Description)
	if v := r.Take("program"); v.Given() {
		if text(v, &a.Program); a.Program != "" && !programForm().MatchString(a.Program) {
			v.Failf("", "must be the name of a program in the image, without a path, found %q", a.Program)
		}
	}
	words(r.Take("args"), &a.Args)
	words(r.Take("last"), &a.Last)
	words(r.Take("version_args"), &a.VersionArgs)
	if v := r.Take("prompt"); v.Given() {
		a.Prompt = v.OneOf(PromptStdin, PromptFile)
	}
	if v := r.Take("events"); v.Given() {
		a.Events = v.OneOf(agents.Formats()...)
	}
	checked(r.Take("needs"), &a.Needs, "names of programs", func(s string) string {
		return wrong(programForm().MatchString(s), "is not the name of a program: %q", s)
	})
	checked(r.Take("hosts"), &a.Hosts, "names of hosts", func(s string) string {
		if _, err := policy.Parse(s); err != nil {
			return err.Error()
		}
		return ""
	})
	checked(r.Take("credentials"), &a.Credentials, "names of credentials", func(s string) string {
		return wrong(nameForm().MatchString(s), "is not the name of a credential: %q", s)
	})
	env(r.Take("env"), &a.Env)
	if v := r.Take("versions"); v.Given() {
		checked(v, &a.Versions, "versions", func(s string) string {
			return wrong(versionForm().MatchString(s), "is not a version: %q", s)
		})
		if len(a.Versions) > 2 {
			v.Failf("", "has more than the first and the last version")
		}
	}
	options(r.Table("options"), a)
	sandbox(r.Table("sandbox"), a)
	exits(r.Table("exit"), a)
	tells(r.Table("tells"), a)
	home(r.Table("home"), a)
	a.check(r)
	return a
}

// check complains about keys that do not fit together.
func (a *Adapter) check(r *strict.Reader) {
	v := r.Take("args")
	all := slices.Concat(a.Args, a.Last)
	switch n := count(all, PromptWord); {
	case a.Program == "" && len(all) > 0:
		v.Failf("", "stand without a program")
	case a.Program != "" && a.Prompt == PromptFile && n != 1:
		r.Take("prompt").Failf("add "+PromptWord+" to args, where the program wants the path of its prompt",
			"is \"file\", and %d of the arguments are %s", n, PromptWord)
	case a.Prompt == PromptStdin && n > 0:
		v.Failf(`say prompt = "file"`, "have %s, and the prompt is the standard input", PromptWord)
	}
	if a.Events == agents.FormatNone && a.Tells != (jobs.Tells{}) {
		r.Take("tells").Failf("", "says what events tell, and there are none")
	}
}

func count(list []string, word string) (n int) {
	for _, w := range list {
		if w == word {
			n++
		}
	}
	return n
}

func wrong(right bool, format, s string) string {
	if right {
		return ""
	}
	return strings.Replace(format, "%q", strconv.Quote(s), 1)
}

func text(v strict.Value, to *string) {
	if v.Given() {
		*to = v.Text()
	}
}

// words reads arguments: whole words, in which braces are text but for two.
func words(v strict.Value, to *[]string) {
	if !v.Given() {
		return
	}
	*to = nil
	for _, item := range v.Items("arguments") {
		s, ok := item.Raw()
		switch {
		case !ok:
		case jobs.CheckText("", s) != nil:
			item.Failf("", "holds a control character")
		case s != PromptWord && (strings.Contains(s, PromptWord) || strings.Contains(s, "{prompt}")):
			item.Failf("the prompt is the standard input, or in the file that "+PromptWord+" names, as a word of its own",
				"has the prompt in an argument, which other users of a machine can read")
		case strings.Contains(s, jobs.SessionWord):
			item.Failf(`give the words for it: session in [options], with "{}" in them`, "has %s, which stands for a session", jobs.SessionWord)
		default:
			*to = append(*to, s)
		}
	}
}

func checked(v strict.Value, to *[]string, of string, why func(string) string) {
	if !v.Given() {
		return
	}
	*to = nil
	for _, item := range v.Items(of) {
		s := item.Text()
		if s == "" {
			continue
		}
		if w := why(s); w != "" {
			item.Failf("", "%s", w)
			continue
		}
		*to = append(*to, s)
	}
}

func env(v strict.Value, to *[]string) {
	checked(v, to, "NAME=VALUE", func(s string) string {
		name, _, ok := strings.Cut(s, "=")
		switch {
		case !ok:
			return "gives no value: write NAME=VALUE; a variable of the caller's is named by the task"
		case task.BadVariable(name) != "":
			return "gives " + strconv.Quote(name) + ", which " + task.BadVariable(name)
		case name == "PATH" || strings.HasPrefix(name, "LD_"):
			return "gives " + name + ", which is not for an adapter to set"
		}
		return ""
	})
}

func options(t *strict.Reader, a *Adapter) {
	a.Options = maps.Clone(a.Options)
	for _, name := range optionNames {
		v := t.Take(name)
		if !v.Given() {
			continue
		}
		var list []string
		words(v, &list)
		n := 0
		for _, w := range list {
			if w == value || strings.HasSuffix(w, "="+value) {
				n++
			}
		}
		if a.Options[name] = list; n != 1 && len(list) > 0 {
			v.Failf("", `must have the value once: "{}", or an option that ends with "={}"`)
		}
		if len(list) == 0 {
			delete(a.Options, name)
		}
	}
}

func sandbox(t *strict.Reader, a *Adapter) {
	words(t.Take("off"), &a.Sandbox.Off)
	words(t.Take("on"), &a.Sandbox.On)
	env(t.Take("off_env"), &a.Sandbox.OffEnv)
}

func exits(t *strict.Reader, a *Adapter) {
	a.Exit = maps.Clone(a.Exit)
	for _, code := range t.Names() {
		v := t.Take(code)
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 255 || strconv.Itoa(n) != code {
			v.Failf("", "is not an exit code from 1 to 255")
			continue
		}
		if reason := v.OneOf(agents.Reasons...); reason != "" {
			a.Exit[code] = reason
		}
	}
}

func tells(t *strict.Reader, a *Adapter) {
	for name, to := range map[string]*string{"turns": &a.Tells.Turns, "tokens": &a.Tells.Tokens, "usd": &a.Tells.USD} {
		if v := t.Take(name); v.Given() {
			*to = v.OneOf(jobs.TellsEach, jobs.TellsEnd)
		}
	}
}

func home(t *strict.Reader, a *Adapter) {
	a.Home = maps.Clone(a.Home)
	for _, path := range t.Names() {
		v := t.Take(path)
		s, ok := v.Raw()
		switch {
		case !ok:
		case !filepath.IsLocal(path) || filepath.Clean(path) != path || path == "." || jobs.CheckText("", path) != nil:
			v.Failf("", "must be a path below HOME, such as .agent/config.toml")
		case len(s) > maxFile:
			v.Failf("", "has more than %s", jobs.Bytes(maxFile))
		case v.CheckScript(s):
			a.Home[path] = s
		}
	}
	if len(a.Home) > maxFiles {
		t.Take(t.Names()[0]).Failf("", "is one of more than %d files", maxFiles)
	}
}
