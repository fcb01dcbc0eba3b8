package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
	"berth/jobs"
)

// Images that were built here have names of their own: "build:NAME", and
// "template:NAME@KEY" and "overlay:NAME@KEY", where KEY stands for all that went into it.
const (
	fromBuild    = "build:"
	fromTemplate = "template:"
	fromOverlay  = "overlay:"
)

// keyed are those with a key: what is under such a name is the same for ever.
var keyed = []string{fromTemplate, fromOverlay}

var (
	builtForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	keyedForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}@[0-9a-f]{32}$`)
)

// BuildRef is the reference of an image that was built under a name.
func BuildRef(name string) (string, error) {
	if !builtForm().MatchString(name) {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.100q cannot name an image", name),
			Hint: "lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return fromBuild + name, nil
}

// TemplateRef is the reference of the image of a template; all that goes into
// the image makes its key.
func TemplateRef(name string, parts ...string) string {
	return fromTemplate + name + "@" + key(parts...)
}

// OverlayRef is the reference of the image of an overlay and of what it is over; all that
// goes into the image makes its key.
func OverlayRef(name string, parts ...string) string {
	return fromOverlay + name + "@" + key(parts...)
}

// IsBuilt tells whether a reference names what was built here, and is in no
// registry.
func IsBuilt(ref string) bool { return strings.HasPrefix(ref, fromBuild) || begins(keyed, ref) }

// Forget takes the name of an image that was built away from it; the image
// stays.
func (c *Cache) Forget(ref string) error {
	if err := checkBuilt(ref); err != nil || !IsBuilt(ref) {
		return err
	}
	if err := os.Remove(filepath.Join(c.Dir, dirRefs, key(ref)+suffixJSON)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func checkBuilt(ref string) error {
	if name, ok := strings.CutPrefix(ref, fromBuild); ok {
		_, err := BuildRef(name)
		return err
	}
	kind, name, _ := strings.Cut(ref, ":")
	if !keyedForm().MatchString(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q names no image", ref),
			Hint: "that of the " + kind + " is used by: --" + kind + " " + name}
	}
	return nil
}

func notBuilt(ref string) error {
	e := &jobs.Error{Kind: jobs.KindNotFound, Msg: "the cache has no " + ref,
		Hint: "build it: berth image build FILE.def --name " + strings.TrimPrefix(ref, fromBuild)}
	if name, ok := strings.CutPrefix(ref, fromTemplate); ok {
		name, _, _ = strings.Cut(name, "@")
		e.Hint = "it was removed since; it is built again by: berth template build " + name
	}
	if name, ok := strings.CutPrefix(ref, fromOverlay); ok {
		name, _, _ = strings.Cut(name, "@")
		e.Hint = "it was removed since; a sweep with --overlay " + name + " makes one of the overlay as it is then"
	}
	return e
}

// Definition is what an image is built from.
type Definition struct {
	Text   []byte
	Dir    string    // where its relative paths begin, or ""
	Output io.Writer // takes what the container program and %post say
	// Ways are how %post can be root here, the best first.
	Ways []Way
	// Shell is this program, which stands over the shell of the base image and
	// confines the scripts that it runs; see guest.ScriptMain.
	Shell string

	// Contain makes the place in which the container program runs in a Way, where builds
	// do not have all of this machine's network; nil is on this machine itself.
	Contain func(ctx context.Context, way Way) (on jobs.Starter, end func(), err error)

	mode string // of the Way that worked
}

// Way is one of the ways in which %post can be root.
type Way struct {
	Name  string
	Flags []string // of "build"
	// Alone says that there is no other user inside: a base that has files of
	// others is unpacked before, without their owners.
	Alone bool
	// Bare says that %post has no privilege that it could be confined in, nor one
	// to take a mount away.
	Bare bool
	// OwnIDs says that Contain gives it root with this user's ids in /etc/subuid.
	OwnIDs bool
}

func (d *Definition) sum() string {
	sum := sha256.Sum256(d.Text)
	return hex.EncodeToString(sum[:])
}

// ErrScript is why an image was not built: a script of its definition failed.
var ErrScript = errors.New("a script of the definition failed")

// Build builds an image on this machine and records it under a reference. What
// has a key in its name is built once; under another name it is built again each
// time, but once for those who wait for each other.
func (c *Cache) Build(ctx context.Context, ref string, d *Definition) (Image, error) {
	return c.built(ctx, want{ref: ref, def: d})
}

// Made has an image recorded under a reference with a key, which by makes at a path unless
// there is one.
func (c *Cache) Made(ctx context.Context, ref string, by func(ctx context.Context, path string) error) (Image, error) {
	return c.built(ctx, want{ref: ref, by: by})
}

// built is an image that is in no registry, and has what the reference says when it is made.
func (c *Cache) built(ctx context.Context, w want) (Image, error) {
	ref := w.ref
	if !IsBuilt(ref) {
		return Image{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.200q cannot name an image that is built", ref)}
	}
	if err := checkBuilt(ref); err != nil {
		return Image{}, err
	}
	w.lookup, w.content = ref, begins(keyed, ref)
	if w.content {
		if img, ok := c.found(ref); ok {
			return c.use(img), nil
		}
	}
	img, err := c.once(ctx, w)
	if err != nil {
		return Image{}, err
	}
	img.Reference = ref
	return c.use(img), nil
}

// build has the container program build from a definition, by the first way
// that this machine allows.
func (c *Cache) build(ctx context.Context, program, scratch, made string, w want) error {
	d := w.def
	if len(d.Ways) == 0 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "images cannot be built here"}
	}
	head := ReadHeader(d.Text)
	if head.interpreter > 0 {
		return &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("line %d of the definition gives %%test an interpreter of its own, which nothing would confine", head.interpreter),
			Hint: "let the shell call it: leave the line with #! out, and write python3 -c '...', or bash FILE"}
	}
	dir := d.Dir
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		if head.Local {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg:  fmt.Sprintf("the definition names files below %q, which is not on %s", d.Dir, Hostname()),
				Hint: "put it and its files on a file system that the nodes see"}
		}
		dir = "/"
	}
	var err error
	for i, way := range d.Ways {
		c.Progress("building " + w.ref + ", %post as " + way.Name)
		if err = c.buildBy(ctx, program, scratch, made, dir, head, way, d); err == nil {
			d.mode = way.Name
			return nil
		}
		// Even what was killed may have left files of other users' ids.
		if rerr := run.RemoveFiles(context.WithoutCancel(ctx), c.On, filepath.Join(scratch, "w")); rerr != nil {
			return errors.Join(err, rerr)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i+1 == len(d.Ways) || !fakerootTrouble(err) {
			break
		}
		c.Progress("that way does not work here: " + LastLine(wordsOf(err)))
		if err := os.MkdirAll(filepath.Join(scratch, "w"), 0o700); err != nil {
			return err
		}
		_ = os.Remove(made)
	}
	if jobs.KindOf(err) == jobs.KindConfig { // no place for it
		return err
	}
	return c.Tool.buildError(w.ref, head, err)
}

func (c *Cache) buildBy(ctx context.Context, program, scratch, made, dir string, head Header, way Way, d *Definition) error {
	env, on := c.environ(program, scratch, head.ask()), c.On
	if d.Contain != nil {
		in, end, err := d.Contain(ctx, way)
		if err != nil {
			return err
		}
		defer end()
		on = in
	}
	text := d.Text
	if way.Alone {
		bases := filepath.Join(scratch, "w", "base")
		for i, from := range head.files(dir) {
			to := filepath.Join(bases, fmt.Sprint(i))
			if err := os.MkdirAll(bases, 0o700); err != nil {
				return err
			}
			c.Progress("unpacking " + from.path)
			unpack := jobs.Cmd{Argv: []string{program, "build", "--sandbox", to, from.path}, Dir: dir, Env: env, Stderr: d.Output}
			if err := run.Logged(ctx, on, unpack); err != nil {
				return err
			}
			text = from.replace(text, to)
		}
	}
	file := filepath.Join(scratch, "w", "image.def")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	binds, err := ownTemp(filepath.Join(scratch, "w"))
	if err != nil {
		return err
	}
	if d.Shell != "" && !way.Bare {
		covers, err := d.confine(filepath.Join(scratch, "w"))
		if err != nil {
			return err
		}
		binds = append(binds, covers...)
	}
	argv := slices.Concat([]string{program, "build"}, way.Flags, binds, []string{made, file})
	err = run.Logged(ctx, on, jobs.Cmd{Argv: argv, Dir: dir, Env: env, Stderr: d.Output})
	if err == nil && way.Alone {
		err = disk.RemoveTree(filepath.Join(scratch, "w", "base"))
	}
	return err
}

// ownTemp are the flags that give scripts in a build a /tmp and a /var/tmp of
// their own below dir. The container program would bind the host's, and with
// them sockets of this user, scratch directories of jobs and unpacked images.
func ownTemp(dir string) (flags []string, err error) {
	for _, d := range [][2]string{{"tmp", "/tmp"}, {"vartmp", "/var/tmp"}} {
		here := filepath.Join(dir, d[0])
		if strings.ContainsAny(here, ":,") {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: here + " has a ':' or a ',', which the container program cannot bind",
				Hint: "set TMPDIR, or scratch in the profile, to a directory without them"}
		}
		if err := os.MkdirAll(here, 0o700); err != nil {
			return nil, err
		}
		// Users inside other than root write there, too; outside, the
		// directory above lets no other user in.
		if err := os.Chmod(here, 0o777|os.ModeSticky); err != nil { //nolint:gosec // a /tmp
			return nil, err
		}
		flags = append(flags, "--bind", here+":"+d[1])
	}
	return flags, nil
}

func wordsOf(err error) string {
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		return failed.Stderr
	}
	return err.Error()
}

// fakerootTrouble tells a build that failed because %post could not be root in
// this way from one that failed by itself.
func fakerootTrouble(err error) bool {
	text := wordsOf(err)
	for _, w := range []string{
		"newuidmap", "newgidmap", "/etc/subuid", "/etc/subgid", "uid_map", "gid_map",
		"could not use fakeroot", "fakeroot command", "faked", "libfakeroot",
		"failed to change uid and gids", "starter-suid", "user namespace",
	} {
		if strings.Contains(text, w) {
			return true
		}
	}
	return strings.Contains(text, "GLIBC") && strings.Contains(text, "fakeroot")
}

// buildError says why a definition was not built, by the words of the container
// program.
func (t Tool) buildError(ref string, head Header, err error) error {
	text := wordsOf(err)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(text), w) })
	}
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: "build " + ref, Err: errors.New(LastLine(text)), Hint: "what it said before is in the job's log"}
	switch {
	case has("no space left", "disk quota exceeded"):
		e.Hint = "make room where images are kept and on the scratch disk of " + Hostname() + ": df -h"
	case fakerootTrouble(err):
		e.Kind, e.Msg = jobs.KindConfig, "build "+ref+": its %post needs root, and fakeroot is not available on "+Hostname()
		e.Hint = "ask for ids of your own in /etc/subuid and /etc/subgid, or build it elsewhere and name the SIF"
	case has("signal: killed", "out of memory", "cannot allocate memory"):
		e.Err, e.Hint = errors.New("a process of it was killed, for memory as it seems"), "give it more: --memory 4GiB"
	case has(t.ScriptFailed...):
		e.Kind, e.Err, e.Hint = jobs.KindUsage, fmt.Errorf("%w: %s", ErrScript, LastLine(text)), ""
	case has("unable to parse", "invalid build source", "unable to build from", "is not a valid", "invalid header"):
		e.Kind, e.Msg, e.Hint = jobs.KindUsage, "the definition of "+ref, ""
	case has("conveyor failed to get") && head.ask() != "":
		return t.fetchError(head.ask(), err)
	}
	return e
}

// Header is what berth reads of a definition.
type Header struct {
	Bootstrap string // of the first stage
	From      string
	// Local says that it names files by relative paths.
	Local bool
	// OnHost is the line, from 1, of the first section that the container program runs on
	// its machine, outside of the image: 0 is none.
	OnHost int
	stages []stage
	// interpreter is the line, from 1, on which %test names one, or 0: the
	// container program then calls that in place of the shell.
	interpreter int
}

type stage struct {
	bootstrap string
	from      string
	line      int // of From, from 0
}

// ReadHeader reads where the stages of a definition begin, as the container program's
// documentation has it ("Definition Files").
func ReadHeader(text []byte) Header {
	var h Header
	section := ""
	cur := -1
	for i, line := range bytes.Split(text, []byte("\n")) {
		s := strings.TrimSpace(string(line))
		key, value, ok := strings.Cut(s, ":")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(s, "%"):
			section = strings.ToLower(strings.Fields(s)[0])
			if (section == "%setup" || section == "%pre") && h.OnHost == 0 {
				h.OnHost = i + 1
			}
		case section == "%test" && strings.HasPrefix(s, "#!") && h.interpreter == 0:
			h.interpreter = i + 1
		case ok && key == "bootstrap":
			section = ""
			h.stages = append(h.stages, stage{bootstrap: strings.ToLower(value), line: -1})
			cur++
		case section == "" && ok && key == "from" && cur >= 0:
			h.stages[cur].from, h.stages[cur].line = value, i
		case section == "%files" && s != "" && !strings.HasPrefix(s, "#") && !strings.HasPrefix(s, "/"):
			h.Local = true
		}
	}
	for _, s := range h.stages {
		if s.file() && !filepath.IsAbs(s.from) {
			h.Local = true
		}
	}
	if len(h.stages) > 0 {
		h.Bootstrap, h.From = h.stages[0].bootstrap, h.stages[0].from
	}
	return h
}

// Within refuses a definition that a build with a network of its own cannot hold, or cannot
// build from.
func (h Header) Within(n jobs.Network) error {
	if h.OnHost > 0 {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("line %d of the definition begins a section that runs on the node itself, "+
				"whose sockets lead out of the network of the build", h.OnHost),
			Hint: "do it in %post, or in %files; or build with an open network: --network open"}
	}
	if n.Mode != jobs.NetworkNone {
		return nil
	}
	for _, s := range h.stages {
		if !slices.Contains([]string{"localimage", "scratch"}, s.bootstrap) {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: fmt.Sprintf("the definition begins with %s %s, which a build without a network cannot fetch", s.bootstrap, s.from),
				Hint: "fetch it before, and begin with the file: berth image pull " +
					"docker://debian:12 prints its path; Bootstrap: localimage, From: PATH"}
		}
	}
	return nil
}

func (s stage) file() bool { return s.bootstrap == "localimage" && s.from != "" }

// ask is the reference that the program fetches, for what depends on the host.
func (h Header) ask() string {
	for _, s := range h.stages {
		if s.bootstrap == "docker" || s.bootstrap == "oras" {
			return s.bootstrap + "://" + strings.TrimPrefix(s.from, "//")
		}
	}
	return ""
}

// base is a file that a stage begins with.
type base struct {
	path string
	line int
}

// files are the images on disk that stages begin with.
func (h Header) files(dir string) []base {
	var out []base
	for _, s := range h.stages {
		path := s.from
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if fi, err := os.Stat(path); s.file() && err == nil && fi.Mode().IsRegular() {
			out = append(out, base{path, s.line})
		}
	}
	return out
}

// replace puts another path into the line From.
func (b base) replace(text []byte, path string) []byte {
	lines := bytes.Split(text, []byte("\n"))
	lines[b.line] = []byte("From: " + path)
	return bytes.Join(lines, []byte("\n"))
}
