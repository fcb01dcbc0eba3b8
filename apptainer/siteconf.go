package apptainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sylabs/singularity/v4/pkg/util/singularityconf"

	"berth/internal/sys/run"
	"berth/jobs"
)

const (
	// mostSiteConf bounds what is read of a configuration; those shipped have 20 KiB.
	mostSiteConf = 1 << 20
	// mostShown bounds what is shown of one value.
	mostShown = 200
	// shippedLoops is "max loop devices" as it is shipped.
	shippedLoops = 256
)

// Build is what the container program tells of its installation.
type Build struct {
	Libexec string // its own programs are below this directory
	Conf    string // the path of the site's configuration; "" where it names none
}

// ParseBuild reads the NAME=VALUE lines of "apptainer buildcfg".
func ParseBuild(out string) Build {
	var b Build
	for line := range strings.Lines(out) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "LIBEXECDIR":
			b.Libexec = value
		case "APPTAINER_CONF_FILE", "SINGULARITY_CONF_FILE":
			b.Conf = value
		}
	}
	return b
}

// SetuidStarter returns the path of the starter that is setuid, or "". A path
// is looked for at what at returns for it.
func (b Build) SetuidStarter(at func(path string) string) string {
	if !filepath.IsAbs(b.Libexec) {
		return ""
	}
	for _, name := range programs {
		p := filepath.Join(b.Libexec, name, "bin", "starter-suid")
		if fi, err := os.Stat(at(p)); err == nil && fi.Mode()&os.ModeSetuid != 0 {
			return p
		}
	}
	return ""
}

// SiteConf is what a site's apptainer.conf or singularity.conf sets. Nil is a
// configuration that is not known, and sets nothing.
type SiteConf struct {
	Path  string // as it is shown
	lines map[string][]siteLine
}

// siteLine is one line that sets a directive.
type siteLine struct {
	number int
	value  string
}

// ReadSiteConf reads the configuration at path. It does not wait for a FIFO, and
// refuses a file of more than 1 MiB.
func ReadSiteConf(path string) (*SiteConf, error) {
	if path == "" {
		return nil, errors.New("the container program does not tell where its configuration is (buildcfg)")
	}
	// A site may keep it elsewhere and have a link to it here.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostSiteConf+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostSiteConf {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, mostSiteConf)
	}
	return parseSiteConf(path, text)
}

// parseSiteConf gives each line by itself to SingularityCE's own parser, which
// Apptainer has, too: it tells no line numbers. A directive never spans lines.
func parseSiteConf(path string, text []byte) (*SiteConf, error) {
	c := &SiteConf{Path: path, lines: map[string][]siteLine{}}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if !bytes.ContainsRune(line, '=') {
			continue
		}
		found, err := singularityconf.GetDirectives(bytes.NewReader(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		for name, values := range found {
			for _, v := range values {
				c.lines[name] = append(c.lines[name], siteLine{number, v})
			}
		}
	}
	return c, nil
}

// values are the parts of a directive's value. As in the program, all lines that
// set it are joined and commas part a line; of a directive that is no list the first
// part counts, and later lines do nothing.
func (c *SiteConf) values(name string) []string {
	if c == nil {
		return nil
	}
	var out []string
	for _, l := range c.lines[name] {
		for v := range strings.SplitSeq(l.value, ",") {
			out = append(out, strings.TrimSpace(v))
		}
	}
	return out
}

// is tells whether a directive that is no list has been set to value.
func (c *SiteConf) is(name, value string) bool {
	v := c.values(name)
	return len(v) > 0 && v[0] == value
}

// where names the lines that set a directive, as
// "/etc/apptainer/apptainer.conf:12: limit container paths = /images".
func (c *SiteConf) where(name string, list bool) string {
	lines := c.lines[name]
	if !list {
		lines = lines[:1]
	}
	var out strings.Builder
	for i, l := range lines {
		if i > 0 {
			out.WriteString("; ")
		}
		v := l.value
		if len(v) > mostShown {
			v = strings.ToValidUTF8(v[:mostShown], "") + " ..."
		}
		fmt.Fprintf(&out, "%s:%d: %s = %s", c.Path, l.number, name, v)
		if i == 2 && len(lines) > 3 {
			fmt.Fprintf(&out, "; and %d lines more", len(lines)-3)
			break
		}
	}
	return out.String()
}

// SetuidOff returns the line that turns a setuid installation off, or "".
func (c *SiteConf) SetuidOff() string {
	if !c.is("allow setuid", "no") {
		return ""
	}
	return c.where("allow setuid", false)
}

// HintSetuidOff is what to do where containers need a setuid installation that
// the site has turned off.
const HintSetuidOff = "where user namespaces are not available, ask the site for them, or to set allow setuid = yes"

// SiteRemark is about a directive that refuses containers of berth's, or changes
// them.
type SiteRemark struct {
	Line  string // "/etc/apptainer/apptainer.conf:12: limit container paths = /images"
	Why   string // what follows from it
	Hint  string
	Fatal bool // no container can be started
}

// The ways in which an installation makes containers.
const (
	bySetuid    = 1 << iota // by a starter with root's rights
	byUser                  // in user namespaces, as it was installed
	bySetuidOff             // in user namespaces: the starter is there and is turned off
	byAny       = bySetuid | byUser | bySetuidOff
)

// siteRule is what berth knows of a directive.
type siteRule struct {
	name string
	list bool
	in   int                        // the ways of making containers for which it holds
	hits func(values []string) bool // tells by the values whether it does something
	why  string                     // "" is nothing that is worth a remark before a container fails
	hint string
	// said are words of the program when a container fails for it.
	said  []string
	fatal bool
	// passes is that the same container may start another time.
	passes bool
}

func valueIs(want string) func([]string) bool {
	return func(v []string) bool { return v[0] == want }
}

func anyValue([]string) bool { return true }

// limited tells whether a limit is one: NULL is documented as none.
func limited(v []string) bool { return !slices.Equal(v, []string{"NULL"}) }

// fewLoops tells whether there are fewer loop devices than are shipped.
func fewLoops(v []string) bool {
	n, err := strconv.ParseUint(v[0], 0, 64)
	return err == nil && n < shippedLoops
}

const (
	hintChange     = "ask the site to change that line"
	hintLimitPaths = "keep images, the scratch directory and the state directory there, or ask the site to add yours: layers are checked as images are"
	hintLimitOwner = "use images of these owners, or ask the site to change that line: layers, which are yours, are checked as images are"
	hintLoops      = "try again when other containers on the node have ended, or ask the site to raise it in that line"
)

// siteRules are in the order in which doctor tells of them.
var siteRules = []siteRule{
	{name: "user bind control", in: byAny, hits: valueIs("no"), hint: hintChange, fatal: true, why: "berth cannot bring its program into a container",
		said: []string{"user bind control"}},
	{name: "enable overlay", in: bySetuid, hits: valueIs("no"), hint: hintChange, fatal: true, why: "no writable layer is available",
		said: []string{"requires 'enable overlay"}},
	{name: "enable overlay", in: byUser | bySetuidOff, hits: valueIs("no"), hint: hintChange,
		why: "layers of the drivers fuse and ext3 are refused; kernel is left", said: []string{"requires 'enable overlay"}},
	{name: "allow setuid", in: bySetuidOff, hits: valueIs("no"), hint: HintSetuidOff,
		said: []string{"suid workflow disabled", "allow setuid = yes", "user namespace", "setgroups", "unprivileged"}},
	{name: "max loop devices", in: bySetuid, hits: fewLoops, hint: hintLoops,
		why: "all users' containers of a node share them, and each takes one for its image and one for an ext3 layer"},
	{name: "max loop devices", in: bySetuid, hits: anyValue, hint: hintLoops, passes: true,
		said: []string{"no loop devices available", "failed to find loop device", "failed to attach loop device"}},
	{name: "allow pid ns", in: byAny, hits: valueIs("no"), hint: hintChange, why: "what a task leaves behind cannot be ended as a whole"},
	{name: "allow container sif", in: byAny, hits: valueIs("no"), hint: hintChange, why: "SIF images are refused",
		said: []string{"from running unencrypted SIF containers"}},
	{name: "allow container squashfs", in: byAny, hits: valueIs("no"), hint: hintChange, why: "squashfs images are refused",
		said: []string{"from running squashFS containers"}},
	{name: "allow container extfs", in: byAny, hits: valueIs("no"), hint: hintChange, why: "layers of the driver ext3 are refused",
		said: []string{"from running extFS containers"}},
	{name: "allow container dir", in: byAny, hits: valueIs("no"), hint: hintChange,
		why: "unpacked images, and layers of the drivers kernel and fuse, are refused", said: []string{"from running sandbox containers"}},
	{name: "limit container owners", list: true, in: byAny, hits: limited, hint: hintLimitOwner, why: "other images are refused",
		said: []string{"not owned by required user", "failed to retrieve user information"}},
	{name: "limit container groups", list: true, in: byAny, hits: limited, hint: hintLimitOwner, why: "other images are refused",
		said: []string{"not owned by required group", "failed to retrieve group information"}},
	{name: "limit container paths", list: true, in: byAny, hits: limited, hint: hintLimitPaths, why: "other images are refused",
		said: []string{"not in an allowed configured path", "failed to resolve path"}},
	{name: "mount hostfs", in: byAny, hits: valueIs("yes"),
		why: "the site wants all its file systems in containers; --contain, which berth uses, keeps them out"},
}

// way tells how containers are made; starter is that a setuid one is installed.
func (c *SiteConf) way(starter bool) int {
	switch {
	case !starter:
		return byUser
	case c.is("allow setuid", "no"):
		return bySetuidOff
	}
	return bySetuid
}

// remark is what a rule says of this configuration, if anything.
func (c *SiteConf) remark(r siteRule, way int) (SiteRemark, bool) {
	v := c.values(r.name)
	if len(v) == 0 || r.in&way == 0 || !r.hits(v) {
		return SiteRemark{}, false
	}
	return SiteRemark{Line: c.where(r.name, r.list), Why: r.why, Hint: r.hint, Fatal: r.fatal}, true
}

// Remarks are about all directives that refuse containers, or change them, on a
// machine with or without a setuid starter.
func (c *SiteConf) Remarks(starter bool) []SiteRemark {
	var out []SiteRemark
	for _, r := range siteRules {
		if m, ok := c.remark(r, c.way(starter)); ok && r.why != "" {
			out = append(out, m)
		}
	}
	return out
}

// explain names the line for which a container has failed, by what its program
// said; nil is that no line is known to be the reason.
func (c *SiteConf) explain(said string, starter bool) *jobs.Error {
	for _, r := range siteRules {
		if !r.matches(said) {
			continue
		}
		if m, ok := c.remark(r, c.way(starter)); ok {
			e := &jobs.Error{Kind: jobs.KindConfig, Msg: m.Line, Hint: m.Hint}
			if r.passes {
				e.Kind, e.Blame = jobs.KindInfra, jobs.BlameNode
			}
			return e
		}
	}
	return nil
}

// matches tells whether the program's words may come of a rule's directive.
func (r siteRule) matches(said string) bool {
	return slices.ContainsFunc(r.said, func(w string) bool { return strings.Contains(said, w) })
}

// buildcfgTime bounds the question for the configuration's path.
const buildcfgTime = 20 * time.Second

// Explain returns a function for [jobs.Opening]: it names the line of the site's
// configuration for which a container of the program has failed. The program is
// asked where that is after a failure only, so that a job which starts does not
// wait for it. A configuration that cannot be read explains nothing.
func Explain(on jobs.Starter, program string, env []string) func(ctx context.Context, said string) *jobs.Error {
	return func(ctx context.Context, said string) *jobs.Error {
		if !slices.ContainsFunc(siteRules, func(r siteRule) bool { return r.matches(said) }) {
			return failedFor(said)
		}
		ctx, cancel := context.WithTimeout(ctx, buildcfgTime)
		defer cancel()
		out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{program, "buildcfg"}, Dir: "/", Env: env})
		if err != nil {
			return failedFor(said)
		}
		b := ParseBuild(string(out))
		c, err := ReadSiteConf(b.Conf)
		if err != nil {
			return failedFor(said)
		}
		if x := c.explain(said, b.SetuidStarter(func(path string) string { return path }) != ""); x != nil {
			return x
		}
		return failedFor(said)
	}
}
