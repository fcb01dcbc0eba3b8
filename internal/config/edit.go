package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/agents/adapters"
	"berth/internal/config/strict"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// literalOf checks a text for a key and writes it as TOML.
func (p place) literalOf(name, text string) (string, error) {
	if p.key == nil {
		list, err := words(text, false)
		if err != nil {
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: name + " " + err.Error()}
		}
		for _, w := range list {
			if !slices.Contains(allowWords, w) {
				return "", &jobs.Error{Kind: jobs.KindUsage,
					Msg: fmt.Sprintf("%s must hold words out of %s, found %q%s", name,
						strings.Join(allowWords, ", "), w, strict.DidYouMean(w, allowWords))}
			}
		}
		return shown(list), nil
	}
	k := p.key
	if strings.TrimSpace(text) == "" && k.Type != List && k.Type != Pairs && k.Type != Tables {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "the value of " + name + " is empty", Hint: "berth config unset " + name}
	}
	if k.Secret {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: name + " is a secret, which does not belong on a command line",
			Hint: "set the variable " + k.Env[0]}
	}
	got, err := k.Parse(text, name)
	if err != nil {
		return "", err
	}
	if got == nil && k.Refused != "" {
		got = k.Only
	}
	return tomlOf(k, got, text), nil
}

// tomlOf writes a value that has been checked; sizes and times stay as they
// were written.
func tomlOf(k *Key, got any, text string) string {
	text = strings.TrimSpace(text)
	switch v := got.(type) {
	case bool, int:
		return shown(v)
	case jobs.USD:
		return text
	case jobs.Bytes, time.Duration:
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return text
		}
		return literal(text)
	case []string:
		if k.Type == Pairs {
			return inlineTable(v)
		}
		return shown(v)
	case string:
		switch {
		case k.Type == GPUs && strings.Trim(v, "0123456789") == "":
			return v
		case k.Type == Bool:
			return v
		case strings.HasPrefix(text, "~"):
			return literal(text) // the same home on every machine
		}
		return literal(v)
	}
	return literal(text)
}

func inlineTable(pairs []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, kv := range pairs {
		name, value, _ := strings.Cut(kv, "=")
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name + " = " + literal(value))
	}
	b.WriteByte('}')
	return b.String()
}

// Set writes a key into a file, after the new file has been checked as a
// whole. With project it is the project's, and what that may not say is
// refused.
func Set(src Sources, project bool, name, text string) (file string, err error) {
	p, err := locate(name)
	if err != nil {
		return "", err
	}
	lit, err := p.literalOf(name, text)
	if err != nil {
		return "", err
	}
	if name == "review.agent" && text != NoReviewer {
		if _, err := adapters.Find(AgentsDir(), text); err != nil {
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: name, Err: err, Hint: jobs.HintOf(err)}
		}
	}
	return edit(src, project, func(file string, data []byte) ([]byte, error) {
		return strict.SetTOML(file, data, p.path, lit)
	})
}

// Unset takes a key out of a file, and tells whether it was there.
func Unset(src Sources, project bool, name string) (file string, was bool, err error) {
	p, err := locate(name)
	if err != nil {
		return "", false, err
	}
	file, err = edit(src, project, func(file string, data []byte) (out []byte, err error) {
		out, was, err = strict.UnsetTOML(file, data, p.path)
		return out, err
	})
	return file, was, err
}

func edit(src Sources, project bool, change func(file string, data []byte) ([]byte, error), dry ...bool) (string, error) {
	path, layer, what := src.User, layerUser, userWhat
	if project {
		path, layer, what = src.projectPath(), layerProject, projectWhat
	}
	if path == "" {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the " + what, Hint: "set HOME"}
	}
	if why := foreignDir(filepath.Dir(path)); project && why != "" {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: path + " would not be read: " + why, Hint: "ls -ld " + filepath.Dir(path)}
	}
	data, err := readSafely(path, what)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// The old file is judged first: berth does not write into what it does not
	// understand.
	if _, err := parse(path, data, layer); err != nil {
		return "", err
	}
	out, err := change(path, data)
	if err != nil {
		return "", err
	}
	f, err := parse(path, out, layer)
	if err != nil {
		return "", err
	}
	// By itself it may be right, and not beside the other one.
	own := &Config{src: src, user: f}
	if project {
		own = &Config{src: src, project: f}
		if err := own.readUser(); err != nil {
			return "", err
		}
	}
	if err := own.settle(nil, nil); err != nil {
		return "", err
	}
	if string(out) == string(data) || slices.Contains(dry, true) {
		return path, nil
	}
	return path, replace(path, out, project)
}

// projectPath is the project's file, or where one would be: at the top of the
// repository, else in the directory itself.
func (s Sources) projectPath() string {
	if s.Dir == "" {
		return ""
	}
	if path, _ := findProject(s.Dir, s.Home); path != "" {
		return path
	}
	for dir := s.Dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return filepath.Join(dir, ProjectFile)
		}
		if dir == s.Home || dir == filepath.Dir(dir) {
			return filepath.Join(s.Dir, ProjectFile)
		}
	}
}

func isLink(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode()&fs.ModeSymlink != 0
}

// replace writes a file beside the old one and puts it in its place. A link to
// the user's file stays one: people keep such files elsewhere.
func replace(path string, data []byte, project bool) error {
	mode := fs.FileMode(0o600)
	if project {
		mode = 0o644
	}
	if fi, err := os.Stat(path); err == nil {
		if fi.Mode().Perm()&0o200 == 0 { // a rename would not ask
			return &jobs.Error{Kind: jobs.KindConfig, Msg: path + " is read-only", Hint: "chmod u+w " + path + ", unless another program makes it"}
		}
		if project {
			mode = fi.Mode().Perm()
		}
	}
	if !project {
		switch real, err := filepath.EvalSymlinks(path); {
		case err == nil:
			path = real
		case isLink(path):
			return &jobs.Error{Kind: jobs.KindConfig, Msg: path + " is a symbolic link that leads nowhere", Hint: "ls -l " + path}
		}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "make the directory of the configuration", Err: err}
	}
	bad := func(err error) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "write " + path, Err: err, Hint: "ls -ld " + dir}
	}
	if err := disk.Replace(path, data, mode); err != nil {
		return bad(err)
	}
	return nil
}
