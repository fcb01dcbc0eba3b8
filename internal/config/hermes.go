package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Imported is what became of one word of another program's files.
type Imported struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"` // as it stands in the file now
	From  string `json:"from"`            // file and line, or the variable's file
	// Why is the reason for which it was left out, or a remark about what was
	// carried over.
	Why     string `json:"why,omitempty"`
	Carried bool   `json:"carried"`
}

// ImportHermes reads config.yaml and .env of Hermes and writes what they say of
// the terminal into the user's file. Keys that stand there with other values
// are kept, and an error says so, unless force is set; with dry nothing is
// written.
func ImportHermes(src Sources, dir string, force, dry bool) (file string, list []Imported, err error) {
	im := &importer{}
	yaml, env := filepath.Join(dir, "config.yaml"), filepath.Join(dir, ".env")
	found := false
	for _, f := range []struct {
		path string
		read func(string, []byte) error
	}{{yaml, im.yaml}, {env, im.env}} {
		data, err := readForeign(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = true
		if err == nil {
			err = f.read(f.path, data)
		}
		if err != nil {
			return "", nil, err
		}
	}
	if !found {
		return "", nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no configuration of Hermes in " + dir,
			Hint: "--dir DIR names the directory with config.yaml and .env"}
	}
	im.usualImage()
	file, err = edit(src, false, func(file string, data []byte) ([]byte, error) {
		return im.into(file, data, force)
	}, dry)
	return file, im.list, err
}

// hermesImage is Hermes' own default, which berth has none of.
const hermesImage = "nikolaik/python-nodejs:python3.11-nodejs20"

// usualImage writes down the image that a backend of theirs has where none is named.
func (im *importer) usualImage() {
	for _, c := range im.values {
		if c.key.Name != "terminal.backend" {
			continue
		}
		can := jobs.CapabilitiesOf(strings.Trim(c.literal, `"`))
		for key, image := range map[string]string{"terminal.singularity_image": "docker://" + hermesImage, "terminal.docker_image": hermesImage} {
			k := Find(key)
			if (k.Type == Image && can.Layers || k.Type != Image && can.Daemon) && !im.has(k) {
				im.text(key, "the default of Hermes", image)
			}
		}
	}
}

func readForeign(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular() || fi.Size() > strict.MaxFile:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s is not a file of at most %s", path, jobs.Bytes(strict.MaxFile))}
	}
	return os.ReadFile(path)
}

type importer struct {
	list   []Imported
	values []carried
}

// carried is a value on its way into the file.
type carried struct {
	key     *Key
	literal string
}

func (im *importer) leave(key, from, why string) {
	im.list = append(im.list, Imported{Key: key, From: from, Why: why})
}

func (im *importer) has(k *Key) bool {
	return slices.ContainsFunc(im.values, func(c carried) bool { return c.key == k })
}

// yaml reads the section terminal of config.yaml; the others are not berth's
// affair.
func (im *importer) yaml(path string, data []byte) error {
	doc, err := strict.DecodeYAML(path, data)
	if err != nil {
		return err
	}
	v := doc.Root().Take("terminal")
	if !v.Given() || v.Is(strict.Null) {
		return nil
	}
	if !v.Is(strict.Table) {
		v.MustBe("a mapping")
		return doc.Err()
	}
	t := v.Table()
	for _, name := range t.Names() {
		item := t.Take(name)
		from := fmt.Sprintf("%s:%d", path, item.Line())
		full := "terminal." + name
		if item.Is(strict.Table) && slices.ContainsFunc(Keys(), func(k Key) bool { return k.table() == full }) {
			sub := item.Table()
			for _, n := range sub.Names() {
				im.value(full+"."+n, from, sub.Take(n))
			}
			continue
		}
		im.value(full, from, item)
	}
	return nil
}

func (im *importer) value(name, from string, v strict.Value) {
	text, ok := textOf(v)
	switch {
	case !ok:
		im.leave(name, from, "its value is of a kind that no key of berth's has")
	case text == "" || text == "[]" || text == "{}":
		// said, and nothing: as if it were not there
	default:
		im.text(name, from, text)
	}
}

// textOf writes a value as a variable would hold it.
func textOf(v strict.Value) (string, bool) {
	switch v.Kind() {
	case strict.Null:
		return "", true
	case strict.String, strict.Int, strict.Number, strict.Bool:
		return v.Source(), true
	case strict.List:
		list := []string{}
		for _, item := range v.Items("strings") {
			s, ok := textOf(item)
			if !ok || item.Is(strict.List) || item.Is(strict.Table) {
				return "", false
			}
			list = append(list, s)
		}
		b, err := json.Marshal(list)
		return string(b), err == nil
	case strict.Table:
		m := map[string]string{}
		t := v.Table()
		for _, n := range t.Names() {
			item := t.Take(n)
			s, ok := textOf(item)
			if !ok || item.Is(strict.List) || item.Is(strict.Table) {
				return "", false
			}
			m[n] = s
		}
		b, err := json.Marshal(m)
		return string(b), err == nil
	case strict.Date:
	}
	return "", false
}

// env reads the variables of .env that are keys; config.yaml wins, as there.
func (im *importer) env(path string, data []byte) error {
	for i, line := range strings.Split(string(data), "\n") {
		name, text, ok := variableLine(line)
		if !ok || text == "" {
			continue
		}
		from := fmt.Sprintf("%s:%d", path, i+1)
		k, _ := byEnv(name)
		switch {
		case k != nil && im.has(k):
			im.leave(name, from, k.Name+" is taken from config.yaml, which wins")
		case k != nil && k.Secret:
			im.leave(name, from, "secrets are not written into the configuration: berth reads the variable "+name)
		case k != nil:
			im.text(k.Name, from, text)
		case strings.HasPrefix(name, envPrefix):
			why := "berth has no such key"
			if err := strange(name); err != nil {
				why = strings.TrimPrefix(err.Error(), "the variable "+name+" is not supported: ")
			}
			im.leave(name, from, why)
		case name == "SUDO_PASSWORD":
			im.leave(name, from, "berth keeps no passwords: use an image in which what you need is installed, or --fakeroot")
		case strings.HasPrefix(name, "VERCEL_"):
			im.leave(name, from, noVercel)
		case strings.HasPrefix(name, "MODAL_"):
			im.leave(name, from, "keys are not written into the configuration: the program of the backend modal reads the variable "+name)
		}
	}
	return nil
}

// variableLine reads a line of a .env file.
func variableLine(line string) (name, text string, ok bool) {
	line = strings.TrimSpace(line)
	line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
	name, text, ok = strings.Cut(line, "=")
	name, text = strings.TrimSpace(name), strings.TrimSpace(text)
	if !ok || name == "" || strings.HasPrefix(name, "#") {
		return "", "", false
	}
	if n := len(text); n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return name, text[1 : n-1], true
	}
	if i := strings.Index(text, " #"); i >= 0 {
		text = strings.TrimSpace(text[:i])
	}
	return name, text, true
}

// text takes one value over, or says why not.
func (im *importer) text(name, from, text string) {
	for _, p := range foreignPrefixes {
		if strings.HasPrefix(name, "terminal."+p[0]) {
			im.leave(name, from, p[1])
			return
		}
	}
	k := Find(name)
	switch {
	case k == nil:
		why := "berth has no such key"
		if near := strict.Slip(name, names(), 2); near != "" {
			why += ": did you mean " + near + "?"
		}
		im.leave(name, from, why)
		return
	case k.Secret:
		im.leave(name, from, "secrets are not written into the configuration: set the variable "+k.Env[0])
		return
	case k.Name == "terminal.backend" && (text == "vercel_sandbox" || text == "bubblewrap"):
		im.leave(name, from, text+": "+map[string]string{"vercel_sandbox": noVercel, "bubblewrap": noBubblewrap}[text])
		return
	case (k.Type == Path || k.Type == Image && !strings.Contains(text, "://")) && !filepath.IsAbs(text) && !strings.HasPrefix(text, "~"):
		im.leave(name, from, "the path "+literal(text)+" is relative, and its base is not known")
		return
	case k.Type == Pairs:
		if text = im.withoutSecrets(name, from, text); text == "[]" {
			return
		}
	}
	got, err := k.Parse(text, name)
	if err != nil {
		im.leave(name, from, strings.TrimPrefix(err.Error(), name+" "))
		return
	}
	if got == nil {
		return // it says what berth does in any case
	}
	why := ""
	switch {
	case k.Name == "terminal.backend" && !isOneOf(text, backendWords):
		im.leave(name, from, "berth has no such backend, but where a program berth-backend-"+text+" is installed: "+
			"then berth config set terminal.backend "+text)
		return
	case k.Name == "terminal.backend" && text == jobs.BackendBare:
		why = "nothing is contained there: berth config set terminal.backend auto contains commands"
	case k.Name == "terminal.container_disk" && text != "0":
		why = "with singularity a size takes the overlay driver ext3; 0 leaves the choice"
	}
	lit := tomlOf(k, got, text)
	im.values = append(im.values, carried{k, lit})
	im.list = append(im.list, Imported{Key: name, Value: lit, From: from, Why: why, Carried: true})
}

// withoutSecrets leaves those pairs out whose names or values look like keys
// and passwords.
func (im *importer) withoutSecrets(name, from, text string) string {
	list, err := words(text, true)
	if err != nil {
		return text // the check says so
	}
	keep := []string{}
	for _, kv := range list {
		n, v, _ := strings.Cut(kv, "=")
		if secrets.Name(n) || secrets.Value(v) {
			im.leave(name+"."+n, from, "it looks like a secret, and these are not written into the configuration: "+
				"export "+n+", and add it to terminal.docker_forward_env")
			continue
		}
		keep = append(keep, kv)
	}
	b, err := json.Marshal(keep)
	if err != nil {
		return text
	}
	return string(b)
}

// into writes the values into a text.
func (im *importer) into(file string, data []byte, force bool) ([]byte, error) {
	have, err := parse(file, data, layerUser)
	if err != nil {
		return nil, err
	}
	var other []string
	for _, c := range im.values {
		old, ok := have.values[c.key.Name]
		if ok && !force {
			now, err := parse(file, fmt.Appendf(nil, "[%s]\n%s = %s\n", c.key.table(), c.key.leaf(), c.literal), layerUser)
			if err != nil {
				return nil, err
			}
			if shown(now.values[c.key.Name].V) != shown(old.V) {
				other = append(other, fmt.Sprintf("%s: %s is %s, and Hermes has %s", old.Origin, c.key.Name, old, c.literal))
			}
		}
		if data, err = strict.SetTOML(file, data, strings.Split(c.key.Name, "."), c.literal); err != nil {
			return nil, err
		}
	}
	if len(other) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: strings.Join(other, "\n"), Hint: "--force writes over them; nothing was written"}
	}
	return data, nil
}
