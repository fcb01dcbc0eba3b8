package templates

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/internal/images"
	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

//go:embed workspaces/*.toml
var builtin embed.FS

var shelf = &strict.Shelf{
	Kind: "template", Noun: "a template", Form: workspaceName,
	Letters: "lower-case letters, digits, dots, dashes and underscores, at most 64",
	Builtin: builtin, In: "workspaces", Else: "your own: berth template add FILE.toml",
}

// Workspace is a workspace template: what a place to work in is made from. It
// holds no secret.
type Workspace struct {
	Name        string
	File        string // "" is built in
	Description string
	Image       string         // that it begins with: a SIF, or a reference
	Bootstrap   string         // a script for /bin/sh, run once as root in that image; "" is none
	Env         []string       // names of the caller's variables that commands get
	Resources   jobs.Resources // defaults of cpus, memory, disk and time
	Text        []byte         // the file
}

// Origin says where a template comes from, for people.
func (w *Workspace) Origin() string {
	if w.File == "" {
		return "built in"
	}
	return w.File
}

var workspaceName = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// CheckWorkspaceName refuses what cannot name a template.
func CheckWorkspaceName(name string) error { return shelf.CheckName(name) }

// FindWorkspace returns the template of a name: the user's own in dir, else the
// one that is built in.
func FindWorkspace(dir, name string) (*Workspace, error) {
	file, text, err := shelf.Find(dir, name)
	if err != nil {
		return nil, err
	}
	return named(name, file, text)
}

// ReadWorkspace reads a template from a file.
func ReadWorkspace(file, name string) (*Workspace, error) {
	if err := CheckWorkspaceName(name); err != nil {
		return nil, err
	}
	text, err := strict.ReadFile(file, shelf.Kind)
	if err != nil {
		return nil, err
	}
	return named(name, file, text)
}

// named is the template of a text; file is "" where it is built in.
func named(name, file string, text []byte) (*Workspace, error) {
	w, err := parseWorkspace(cmp.Or(file, name+strict.Ext), text)
	if err != nil {
		return nil, err
	}
	w.Name, w.File = name, file
	return w, nil
}

// Workspaces returns all templates by name; those that cannot be read are in
// the error.
func Workspaces(dir string) ([]*Workspace, error) {
	return strict.FindAll(shelf.Names(dir), func(name string) (*Workspace, error) { return FindWorkspace(dir, name) })
}

// AddWorkspace writes a template into the user's directory, whole or not at
// all. One that exists is an error, unless over is set.
func AddWorkspace(dir string, w *Workspace, over bool) (file string, err error) {
	file = filepath.Join(dir, w.Name+strict.Ext)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "make a directory for templates", Err: err}
	}
	put := disk.Create
	if over {
		put = disk.Replace
	}
	err = put(file, w.Text, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "there is a template " + w.Name + " already: " + file,
			Hint: "--force replaces it; or give another --name"}
	}
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "write the template", Err: err}
	}
	return file, nil
}

// RemoveWorkspace removes a template of the user's.
func RemoveWorkspace(dir, name string) error {
	if err := CheckWorkspaceName(name); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(dir, name+strict.Ext))
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "remove the template " + name, Err: err}
	}
	if _, ok := shelf.Ready(name); ok {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the template " + name + " is built into berth",
			Hint: "one of your own with its name takes its place: berth template add FILE.toml --name " + name}
	}
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("template %q does not exist", name), Hint: "berth template ls"}
}

var variableName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

func parseWorkspace(file string, text []byte) (*Workspace, error) {
	if err := secrets.Refuse(file, string(text), "templates are recorded, and stand in images"); err != nil {
		return nil, err
	}
	doc, err := strict.DecodeTOML(file, text)
	if err != nil {
		return nil, err
	}
	root := doc.Root()
	root.Synonyms("image", "base", "from", "container", "sif")
	root.Synonyms("bootstrap", "script", "post", "setup", "install")
	root.Synonyms("env", "environment", "pass", "forward")
	root.Synonyms("resources", "limits")
	w := &Workspace{Text: text, Description: root.Take("description").Text()}
	image := root.Take("image")
	switch given, _ := image.Raw(); {
	case !image.Given():
		root.Need("image", `"docker://debian:12"`)
	case images.IsReference(given), filepath.IsAbs(given), strings.HasPrefix(given, "~/"):
		w.Image = keys.Image(image)
	default:
		image.Failf("", "must be a reference such as docker://debian:12, or the path of a SIF from / on, found %q", given)
	}
	script := root.Take("bootstrap")
	if w.Bootstrap = script.Script(); script.Given() {
		checkBootstrap(script, w.Bootstrap)
	}
	for _, item := range root.Take("env").Items("names of variables") {
		switch name := item.Text(); {
		case name == "":
		case strings.Contains(name, "="):
			item.Failf("a value that is no secret is set by the bootstrap script",
				"gives a value: a template holds names, whose values are those of the user who uses it")
		case !variableName().MatchString(name):
			item.Failf("", "is not the name of a variable: %q", name)
		default:
			w.Env = append(w.Env, name)
		}
	}
	res := root.Table("resources")
	res.Refuse("is the task's to say, not a template's", "gpus", "nodes", "ntasks")
	w.Resources = jobs.Resources{
		CPUs:   res.Take("cpus").Count(1 << 20),
		Memory: keys.Size(res.Take("memory")),
		Disk:   keys.Size(res.Take("disk")),
		Time:   keys.Duration(res.Take("time")),
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return w, nil
}

// checkBootstrap refuses what would be something else in a definition file.
func checkBootstrap(v strict.Value, script string) {
	if strings.HasPrefix(script, "#!") {
		v.Failf("begin another one from it: bash -e <<'END'", "begins with #!, and is run by /bin/sh -e")
	}
	n := 0
	for line := range strings.Lines(script) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "%") {
			v.Failf("write it another way, such as with printf",
				"has a line that begins with %%, its line %d: a section of a definition would begin there", n)
		}
	}
}

// Definition is what the image of a template is built from, over the SIF at
// base.
func (w *Workspace) Definition(base string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Bootstrap: localimage\nFrom: %s\n", base)
	if w.Bootstrap != "" {
		b.WriteString("\n%post\n" + strings.TrimRight(w.Bootstrap, "\n") + "\n")
	}
	return b.String()
}
